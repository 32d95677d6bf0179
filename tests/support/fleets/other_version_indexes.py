"""Indexes of other versions: as programs before this one have left them (`stored/`), and as a later one may."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from fleetlight.indexer.backends.elasticsearch.mapping import MAPPING_VERSION, progress_mapping
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.backends.sqlite.schema import SCHEMA_VERSION
from tests.support.fleets.documents import make_document
from tests.support.servers.index_server import index_client

_STORED = Path(__file__).parent / "stored"

_PARTIAL = (f"schema {SCHEMA_VERSION - 1}", f"mapping {MAPPING_VERSION - 1}")
ANNOUNCED_CELL = "nova"
ANNOUNCED = make_document(
    7,
    cell_uuid=ANNOUNCED_CELL,
    version=1_700_000_000_000_001,
    tags=["a"],
    locked=True,
    metadata={"role": "db"},
)
"""What they have from notifications. There is also a document of a revision, of no row of any cell."""


def store_other_version(settings: IndexSettings, store: str) -> None:
    """store: `schema 1` or `schema 2` of SQLite, `mapping 1`, `mapping 2` or `mapping 4` of Elasticsearch."""
    if store in _PARTIAL:
        _store_partial(settings)
        return
    if settings.backend == "sqlite":
        with closing(sqlite3.connect(settings.path)) as connection:
            connection.executescript((_STORED / "sqlite_schema_1.sql").read_text())
        return
    stored = json.loads((_STORED / "elasticsearch_mapping_2.json").read_text())
    if store == "mapping 1":
        # That is the whole difference (fleetlight.indexer.backends.elasticsearch.mapping).
        stored["mappings"]["_meta"]["mapping_version"] = 1
        for fields in (stored["mappings"]["properties"], *(document["source"] for document in stored["documents"])):
            for name in ("version", "digest_high", "digest_low"):
                del fields[name]
    name = f"{settings.prefix}-instances"
    physical = f"{name}-{store.replace(' ', '-')}"
    with index_client(settings.urls[0], request_timeout=60) as client:
        aliases = {name: {}, f"{name}-write": {"is_write_index": True}}
        client.indices.create(index=physical, mappings=stored["mappings"], aliases=aliases)
        client.indices.create(index=f"{settings.prefix}-progress", mappings=progress_mapping(physical))
        for document in stored["documents"]:
            client.index(
                index=physical,
                id=document["id"],
                version=document["version"],
                version_type="external",
                document=document["source"],
            )


def _store_partial(settings: IndexSettings) -> None:
    """An index of the version before this one, which kept of a document with a revision a part of the record only."""
    with closing(open_writer(settings)) as writer:
        writer.prepare()
        writer.write([ANNOUNCED, make_document(8, metadata=None)])
        writer.make_searchable()
    if settings.backend == "sqlite":
        with closing(sqlite3.connect(settings.path)) as connection:
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION - 1}")
        return
    with index_client(settings.urls[0], request_timeout=60) as client:
        name = f"{settings.prefix}-instances"
        [found] = client.indices.get_mapping(index=name).body.values()
        client.indices.put_mapping(
            index=name, meta={**found["mappings"]["_meta"], "mapping_version": MAPPING_VERSION - 1}
        )


def make_newer(settings: IndexSettings, name: str = "") -> None:
    """Turn an index of this program into one of a newer one, whose documents may have a field that we do not know.

    name: the alias, of Elasticsearch; the current one unless given.
    """
    if settings.backend == "sqlite":
        with closing(sqlite3.connect(settings.path)) as connection:
            connection.executescript(
                f"ALTER TABLE documents ADD COLUMN novelty TEXT; PRAGMA user_version = {SCHEMA_VERSION + 1}"
            )
        return
    with index_client(settings.urls[0], request_timeout=60) as client:
        name = name or f"{settings.prefix}-instances"
        [found] = client.indices.get_mapping(index=name).body.values()
        client.indices.put_mapping(
            index=name,
            meta={**found["mappings"]["_meta"], "mapping_version": MAPPING_VERSION + 1},
            properties={"novelty": {"type": "keyword"}},
        )

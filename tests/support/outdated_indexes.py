"""Indexes as programs before this one have left them, stored as they were: `stored/`."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from elasticsearch import Elasticsearch

from indexer.backends.elasticsearch.mapping import progress_mapping
from indexer.backends.settings import IndexSettings
from tests.support.documents import make_document

_STORED = Path(__file__).parent / "stored"

OUTDATED_CELL = "nova"
OUTDATED = make_document(
    7,
    cell_uuid=OUTDATED_CELL,
    version=1_700_000_000_000_001,
    tags=["a"],
    locked=True,
    metadata={"role": "db"},
)
"""What they have from notifications. There is also a document of a revision, of no row of any cell."""


def store_outdated(settings: IndexSettings, store: str) -> None:
    """store: `schema 1` of SQLite, `mapping 2` or `mapping 1` of Elasticsearch."""
    if settings.backend == "sqlite":
        with closing(sqlite3.connect(settings.path)) as connection:
            connection.executescript((_STORED / "sqlite_schema_1.sql").read_text())
        return
    stored = json.loads((_STORED / "elasticsearch_mapping_2.json").read_text())
    if store == "mapping 1":
        # That is the whole difference (indexer.backends.elasticsearch.mapping).
        stored["mappings"]["_meta"]["mapping_version"] = 1
        for fields in (stored["mappings"]["properties"], *(document["source"] for document in stored["documents"])):
            for name in ("version", "digest_high", "digest_low"):
                del fields[name]
    name = f"{settings.prefix}-instances"
    physical = f"{name}-{store.replace(' ', '-')}"
    with Elasticsearch(list(settings.urls), request_timeout=60) as client:
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

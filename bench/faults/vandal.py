"""What another program writes into the index, as its kind of index lets it."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Protocol
from uuid import UUID

from elasticsearch import Elasticsearch

from bench.faults.index_damage import IndexDamage
from bench.faults.world import World
from fleetlight.indexer.backends.settings import IndexSettings
from tests.support.servers.index_server import index_client

_FEW = 3


class Vandal(Protocol):
    """acts: what it can do, by its name; each raises an error of the index's own where it cannot be done now."""

    @property
    def acts(self) -> Mapping[str, Callable[[], None]]: ...


class ElasticsearchVandal:
    """generator: which documents are hit."""

    def __init__(self, client: Elasticsearch, index: IndexSettings, generator: Random) -> None:
        prefix = index.prefix
        self._client = client
        self._alias = f"{prefix}-instances"
        self._damage = IndexDamage(client, prefix)
        self._generator = generator
        self.acts: Mapping[str, Callable[[], None]] = {
            "delete": self._delete,
            "alter": self._alter,
            "add": self._add,
            "delete by query": self._delete_by_query,
            "update by query": self._update_by_query,
            "reindex": self._reindex,
            "restore": partial(self._damage.restore, "instances"),
            "close": partial(self._damage.close, "instances"),
            "take the alias": self._take_alias,
            "filter the alias": self._filter_alias,
            "keep writes later": partial(self._set, {"index.translog.durability": "async"}),
            "show few rows": partial(self._set, {"index.max_result_window": 5}),
        }
        if index.backend == "elasticsearch":
            # OpenSearch makes no field in the place of one that is there, and has these processors in a module of its
            # own.
            self.acts = {
                **self.acts,
                "shadow a field": self._shadow,
                "alter by a pipeline": partial(self._pipe, {"set": {"field": "display_name", "value": "altered"}}),
                "drop by a pipeline": partial(self._pipe, {"drop": {}}),
            }

    def _delete(self) -> None:
        for uuid in self._some():
            self._client.delete(index=self._physical, id=uuid)

    def _alter(self) -> None:
        for uuid in self._some():
            self._client.update(index=self._physical, id=uuid, script={"source": "ctx._source.deleted = true"})

    def _add(self) -> None:
        for uuid in self._some():
            source = self._client.get(index=self._physical, id=uuid).body["_source"]
            added = str(UUID(int=self._generator.getrandbits(128)))
            self._client.index(index=self._physical, id=added, document=source | {"uuid": added})

    def _delete_by_query(self) -> None:
        self._client.delete_by_query(index=self._physical, query=self._query, refresh=True, conflicts="proceed")

    def _update_by_query(self) -> None:
        script = {"source": "ctx._source.deleted = true"}
        self._client.update_by_query(
            index=self._physical, query=self._query, script=script, refresh=True, conflicts="proceed"
        )

    def _reindex(self) -> None:
        """To another index and back: some say something else then, with a revision that they have not any more."""
        other = self._new_index()
        for source, destination in ((self._physical, other), (other, self._physical)):
            self._client.reindex(
                source={"index": source, "query": self._query if source != other else {"match_all": {}}},
                dest={"index": destination},
                script={"source": "ctx._source.deleted = true"},
                refresh=True,
            )

    def _take_alias(self) -> None:
        """An empty index is read from now on."""
        taken = [
            {"remove": {"index": self._physical, "alias": self._alias}},
            {"add": {"index": self._new_index(), "alias": self._alias}},
        ]
        self._client.indices.update_aliases(actions=taken)

    def _filter_alias(self) -> None:
        shown = {"filter": {"bool": {"must_not": self._query}}}
        self._client.indices.update_aliases(actions=[{"add": {"index": self._physical, "alias": self._alias, **shown}}])

    def _shadow(self) -> None:
        runtime = {"deleted": {"type": "boolean", "script": {"source": "emit(true)"}}}
        self._client.indices.put_mapping(index=self._physical, runtime=runtime)

    def _pipe(self, processor: Mapping[str, Mapping[str, object]]) -> None:
        name = f"{self._alias}-pipeline"
        self._client.ingest.put_pipeline(id=name, processors=[processor])
        self._set({"index.final_pipeline": name})

    def _set(self, settings: Mapping[str, object]) -> None:
        self._client.indices.put_settings(index=self._physical, settings=settings)

    def _new_index(self) -> str:
        """Like that of the documents, and empty."""
        [found] = self._client.indices.get(index=self._physical).body.values()
        name = f"{self._alias}-other-{self._generator.getrandbits(32)}"
        self._client.indices.create(index=name, mappings=found["mappings"])
        return name

    @property
    def _physical(self) -> str:
        return self._damage.physical("instances-write")

    @property
    def _query(self) -> Mapping[str, object]:
        return {"terms": {"_id": self._some()}}

    def _some(self) -> list[str]:
        """Ids of documents that lists show."""
        self._client.indices.refresh(index=self._physical)
        query = {"term": {"deleted": False}}
        hits = self._client.search(index=self._physical, query=query, size=1000, source=False)["hits"]["hits"]
        return self._generator.sample([str(hit["_id"]) for hit in hits], _FEW)


class SqliteVandal:
    """Another program with the file of the index open. generator: which rows are hit."""

    def __init__(self, path: Path, generator: Random) -> None:
        self._path = path
        self._generator = generator
        self.acts: Mapping[str, Callable[[], None]] = {
            "delete": partial(self._change, "DELETE FROM documents WHERE uuid = ?"),
            "alter": partial(self._change, "UPDATE documents SET deleted = 1 WHERE uuid = ?"),
            "add": self._add,
            "delete all": partial(self._execute, "DELETE FROM documents"),
            "drop the triggers": partial(self._delete_without_triggers, self._drop_triggers),
            "take the triggers out of the schema": partial(self._delete_without_triggers, self._take_triggers_out),
            "restore": self._restore,
        }

    def _change(self, statement: str) -> None:
        with self._connected() as connection:
            for uuid in self._some(connection):
                connection.execute(statement, (uuid,))

    def _execute(self, statement: str) -> None:
        with self._connected() as connection:
            connection.execute(statement)

    def _add(self) -> None:
        with self._connected() as connection:
            columns = [name for _, name, *_ in connection.execute("PRAGMA table_info(documents)")]
            chosen = ", ".join("?" if name == "uuid" else f'"{name}"' for name in columns)
            statement = f"INSERT INTO documents SELECT {chosen} FROM documents WHERE uuid = ?"  # noqa: S608
            for uuid in self._some(connection):
                connection.execute(statement, (str(UUID(int=self._generator.getrandbits(128))), uuid))

    def _delete_without_triggers(self, get_rid_of_them: Callable[[sqlite3.Connection], None]) -> None:
        with self._connected() as connection:
            get_rid_of_them(connection)
            for uuid in self._some(connection):
                connection.execute("DELETE FROM documents WHERE uuid = ?", (uuid,))

    @staticmethod
    def _drop_triggers(connection: sqlite3.Connection) -> None:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for (name,) in names:
            connection.execute(f'DROP TRIGGER "{name}"')

    @staticmethod
    def _take_triggers_out(connection: sqlite3.Connection) -> None:
        """SQLite counts no change of the schema for it."""
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("DELETE FROM sqlite_master WHERE type = 'trigger'")
        connection.execute("PRAGMA writable_schema = RESET")

    def _restore(self) -> None:
        """Some rows as they were before what was made of them since."""
        with self._connected() as connection:
            connection.execute("CREATE TEMP TABLE copy AS SELECT * FROM documents ORDER BY uuid LIMIT 5")
            connection.execute("UPDATE copy SET deleted = 1, version = version - 1")
            connection.execute("REPLACE INTO documents SELECT * FROM copy")

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """In one transaction."""
        with closing(sqlite3.connect(self._path, timeout=60)) as connection, connection:
            yield connection

    def _some(self, connection: sqlite3.Connection) -> list[str]:
        found = [str(uuid) for (uuid,) in connection.execute("SELECT uuid FROM documents WHERE NOT deleted")]
        return self._generator.sample(found, min(len(found), _FEW))


@contextmanager
def open_vandal(world: World, generator: Random) -> Iterator[Vandal]:
    """Past the proxies."""
    index = world.settings.index
    if world.servers.index_file is not None:
        yield SqliteVandal(world.servers.index_file, generator)
        return
    with index_client(world.servers.elasticsearch, request_timeout=30) as client:
        yield ElasticsearchVandal(client, index, generator)

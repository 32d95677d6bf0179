"""The generations of the Elasticsearch index: physical indexes, and the aliases that give them their roles.

A change of aliases is one step for all readers and writers. While a rebuild prepares it, writing to the current index
is blocked; the server confirms the block once writes under way have ended.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

import msgspec

from fleetlight.indexer.backends.base import BareDocument
from fleetlight.indexer.backends.elasticsearch.client import open_client, send
from fleetlight.indexer.backends.elasticsearch.mapping import (
    CONTINUES,
    INDEX_UUID,
    progress_mapping,
)
from fleetlight.indexer.backends.elasticsearch.names import Names, new_physical_name
from fleetlight.indexer.backends.elasticsearch.pause import end_pause, pause_writes
from fleetlight.indexer.backends.elasticsearch.shape import shape_of_instances, shape_of_progress
from fleetlight.indexer.backends.elasticsearch.target import Target, give_progress_to, index_uuid, mappings_of
from fleetlight.indexer.backends.elasticsearch.versions import bare_documents, is_unusable
from fleetlight.indexer.backends.elasticsearch.writer import ElasticsearchWriter
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.errors import IndexerError, IndexUnavailableError, RebuildError

_decode = msgspec.json.Decoder().decode


class ElasticsearchGenerations:
    """fleetlight.indexer.backends.base.Generations."""

    def __init__(self, settings: IndexSettings) -> None:
        self._settings = settings
        self._names = Names.of(settings.prefix)
        self._client = open_client(settings, timeout_s=settings.write_timeout_s)

    def has_next(self) -> bool:
        return self._behind(self._names.next) is not None

    def has_previous(self) -> bool:
        return self._behind(self._names.previous) is not None

    def names(self) -> tuple[str | None, str | None]:
        return self._behind(self._names.write), self._behind(self._names.previous)

    def is_unusable(self) -> bool:
        return any(map(is_unusable, self._mappings(self._names.write).values()))

    def bare_documents(self, cell_uuid: str) -> Iterator[Sequence[BareDocument]]:
        return bare_documents(self._client, self._names.write, cell_uuid)

    def create_next(self) -> None:
        settings = self._settings
        self._create_progress()
        # Create this last, since its alias marks that there is a next index.
        body = shape_of_instances(self._client.dialect).body(shards=settings.shards, replicas=settings.replicas)
        send(self._client, "PUT", f"/{new_physical_name(self._names)}", {**body, "aliases": {self._names.next: {}}})
        with closing(self.open_next()) as writer:
            writer.seal_new()

    def take_previous_as_next(self) -> None:
        name = self._existing(self._names.previous)
        if is_unusable(self._mappings(name)[name]):
            raise RebuildError(f"the previous index {name} is of another version than this program uses")
        self._create_progress()
        end_pause(self._client, name)
        self._change_aliases(_remove(name, self._names.previous), _add(name, self._names.next))
        with closing(self.open_next()) as writer:
            writer.seal_new()

    def open_next(self) -> ElasticsearchWriter:
        return ElasticsearchWriter(self._settings, of_next=True)

    def switch(self, finish: Callable[[], None]) -> None:
        names = self._names
        current, new, previous = self._existing(names.write), self._existing(names.next), self._behind(names.previous)
        self._say_that_it_continues(new, current)
        pause_writes(self._client, current)
        dropped = [] if previous is None else [{"remove_index": {"index": previous}}]
        try:
            finish()
            self._change_aliases(
                _remove(current, names.read),
                _remove(current, names.write),
                _remove(new, names.next),
                _add(new, names.read),
                {"add": {"index": new, "alias": names.write, "is_write_index": True}},
                _add(current, names.previous),
                *dropped,
            )
        except BaseException as error:
            # Only the aliases show whether the switch was done: there may have been no answer, or a second server
            # refused what the first had done. Writes to a replaced index are lost, so its pause must stay; if the
            # aliases cannot be read, indexers end the pause (`allow_writes`).
            written = self._existing(names.write)
            if written == current:
                end_pause(self._client, current)
            if written != new or not isinstance(error, IndexerError):
                raise
        # An indexer does any of the following that fails when it prepares the index, guided by the alias for writing.
        with suppress(IndexerError):
            send(self._client, "PUT", f"/{names.progress}/_mapping", {"_meta": progress_mapping(new)["_meta"]})
            of_current = {"term": {INDEX_UUID: index_uuid(self._client, current)}}
            give_progress_to(self._client, names.progress, Target(self._client, names).owner, of_current)
            self._drop_index(names.next_progress)

    def drop_next(self) -> None:
        self._drop_index(self._behind(self._names.next))
        self._drop_index(self._names.next_progress)

    def drop_previous(self) -> None:
        self._drop_index(self._behind(self._names.previous))

    def close(self) -> None:
        self._client.close()

    def _behind(self, alias: str) -> str | None:
        """The physical index behind an alias, or None."""
        return next(iter(self._mappings(alias)), None)

    def _existing(self, alias: str) -> str:
        name = self._behind(alias)
        if name is None:
            raise IndexUnavailableError(f"there is no index {alias}")
        return name

    def _mappings(self, name: str) -> Mapping[str, Any]:
        return mappings_of(self._client, name)

    def _create_progress(self) -> None:
        """Create the index of progress, without the remains of an earlier rebuild."""
        self._drop_index(self._names.next_progress)
        shape = shape_of_progress(self._client.dialect, self._names.next)
        send(self._client, "PUT", f"/{self._names.next_progress}", shape.body(replicas=self._settings.replicas))

    def _say_that_it_continues(self, new: str, current: str) -> None:
        meta = self._mappings(new)[new]["_meta"] | {CONTINUES: index_uuid(self._client, current)}
        send(self._client, "PUT", f"/{new}/_mapping", {"_meta": meta})

    def _change_aliases(self, *actions: Mapping[str, Any]) -> None:
        # The server does nothing that it has not begun by then, so nothing happens after we have given up.
        give_up_s = self._settings.write_timeout_s / 2
        send(self._client, "POST", f"/_aliases?master_timeout={give_up_s * 1000:.0f}ms", {"actions": actions})

    def _drop_index(self, name: str | None) -> None:
        if name is not None:
            send(self._client, "DELETE", f"/{name}?ignore_unavailable=true")


def _add(index: str, alias: str) -> Mapping[str, Any]:
    return {"add": {"index": index, "alias": alias}}


def _remove(index: str, alias: str) -> Mapping[str, Any]:
    return {"remove": {"index": index, "alias": alias, "must_exist": True}}

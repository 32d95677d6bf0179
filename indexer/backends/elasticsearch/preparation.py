"""Prepares the Elasticsearch indexes: creates missing ones, and forgets what no longer holds."""

from collections.abc import Mapping
from typing import Any, TypeVar

from fleetlight.indexer.backends.elasticsearch.client import Client, IndexExistsError, send
from fleetlight.indexer.backends.elasticsearch.documents import progress_of
from fleetlight.indexer.backends.elasticsearch.mapping import (
    ABOUT,
    instance_mapping,
    progress_mapping,
)
from fleetlight.indexer.backends.elasticsearch.names import Names, new_physical_name
from fleetlight.indexer.backends.elasticsearch.physical import alias_changes, drop_guessed, physical_indexes
from fleetlight.indexer.backends.elasticsearch.shape import (
    Shape,
    deviating,
    shape_of_instances,
    shape_of_items,
    shape_of_progress,
    shape_of_state,
)
from fleetlight.indexer.backends.elasticsearch.target import Target, mappings_of
from fleetlight.indexer.backends.elasticsearch.versions import require_usable
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.errors import IndexAbsentError

T = TypeVar("T")


class Preparation:
    """Prepares the indexes of one writer, which writes to `target`. Raises as IndexWriter.prepare does."""

    def __init__(self, client: Client, names: Names, settings: IndexSettings, target: Target) -> None:
        self._client = client
        self._names = names
        self._settings = settings
        self._target = target

    def prepare(self) -> None:
        """Prepare as IndexWriter does; two processes may do so at once."""
        drop_guessed(self._client, self._names.state, self._names.progress)
        self._create_state()
        self.create_items()
        physical = self._settle_instances()
        self._settle_progress(physical)
        self._target.take()
        self._forget_what_is_void()

    def _create_state(self) -> None:
        if not mappings_of(self._client, self._names.state):
            self._create(self._names.state, shape_of_state(self._client.dialect))

    def create_items(self) -> None:
        """Create the index of items. The marks of whole cells are in it, so a new one makes no cell count as whole."""
        if not mappings_of(self._client, self._names.items):
            aliases = {self._names.items: {"is_write_index": True}}
            self._create(f"{self._names.items}-v1", shape_of_items(self._client.dialect), aliases=aliases)

    def _settle_instances(self) -> str:
        """The physical index of instances, with every field that we write, and with our aliases on it alone.

        The alias for writing decides which index that is. If it does not, the index of progress names one; if that is
        missing too, one is created.
        """
        names = self._names
        found = physical_indexes(self._client, names.read, names.write)
        written = [name for name, index in found.items() if names.write in index.aliases]
        physical = written[0] if len(written) == 1 else self._agree_on_physical_index()
        if not self._extend_mapping(physical):
            self._create(physical, shape_of_instances(self._client.dialect), shards=self._settings.shards)
        found |= physical_indexes(self._client, physical)
        if changes := alias_changes(found, physical, names.read, names.write):
            send(self._client, "POST", "/_aliases", {"actions": changes})
        return physical

    def _extend_mapping(self, physical: str) -> bool:
        """Add missing fields to the index; returns whether the index exists."""
        indexes = mappings_of(self._client, physical)
        require_usable(indexes)
        for name, mapping in indexes.items():
            wanted = instance_mapping()
            if not wanted["properties"].keys() <= mapping["properties"].keys():
                # Keep what a rebuild has noted in the mapping.
                wanted["_meta"] = mapping["_meta"] | wanted["_meta"]
                send(self._client, "PUT", f"/{name}/_mapping", wanted)
        return bool(indexes)

    def _agree_on_physical_index(self) -> str:
        """The name for a new index; the process that creates the index of progress decides on it."""
        if not mappings_of(self._client, self._names.progress):
            self._create_progress(new_physical_name(self._names))
        mapping = _ours(mappings_of(self._client, self._names.progress))
        return str(mapping["_meta"]["instances_index"])

    def _create_progress(self, physical: str) -> None:
        self._create(self._names.progress, shape_of_progress(self._client.dialect, physical))

    def _settle_progress(self, physical: str) -> None:
        """Let the index of progress name `physical`, and have a field for the index that each progress is about."""
        path = f"/{self._names.progress}"
        found = mappings_of(self._client, self._names.progress)
        if not found:
            self._create_progress(physical)
            return
        mapping = _ours(found)
        wanted = progress_mapping(physical)
        if mapping.get("_meta") != wanted["_meta"] or not wanted["properties"].keys() <= mapping["properties"].keys():
            send(self._client, "PUT", f"{path}/_mapping", wanted)

    def _forget_what_is_void(self) -> None:
        """Remove progress and facts about indexes that were removed or replaced."""
        owner = self._target.owner
        state = _only(physical_indexes(self._client, self._names.state))
        about = state.meta.get(ABOUT, owner.instances)
        if about not in owner.all_instances:
            remove_all(self._client, self._names.state, {"match_all": {}})
        if state.meta.get(ABOUT) != owner.instances:
            send(self._client, "PUT", f"/{self._names.state}/_mapping", {"_meta": {ABOUT: owner.instances}})
        valid = progress_of(owner.all_instances, owner.state)["query"]
        remove_all(self._client, self._names.progress, {"bool": {"must_not": [valid]}})

    def put_right(self, *names: str) -> None:
        """Correct the settings, mappings and aliases of those of our indexes that are behind some names.

        Deviations that a server cannot change any more stay (`Deviations.final`).
        """
        for name, each in deviating(self._client, self._names, *names).items():
            if each.settings:
                send(self._client, "PUT", f"/{name}/_settings", each.settings)
            if each.mapping:
                send(self._client, "PUT", f"/{name}/_mapping", each.mapping)
            added = [{"add": {"index": name, "alias": alias, **kept}} for alias, kept in each.aliases.items()]
            if added:
                send(self._client, "POST", "/_aliases", {"actions": added})

    def _create(self, name: str, shape: Shape, *, shards: int = 1, aliases: Mapping[str, Any] | None = None) -> None:
        """Create an index unless it exists; return when it can be used."""
        body = shape.body(shards=shards, replicas=self._settings.replicas)
        try:
            send(self._client, "PUT", f"/{name}", {**body, "aliases": aliases or {}})
        except IndexExistsError:
            # Another process has created it, perhaps just now: wait as the creation would have done.
            send(self._client, "POST", f"/{name}/_open?wait_for_active_shards=1")


def remove_all(client: Client, index: str, query: Mapping[str, Any]) -> None:
    """Remove what a query finds from an index that is not sealed."""
    send(client, "POST", f"/{index}/_delete_by_query?refresh=true&conflicts=proceed", {"query": query})


def _ours(mappings: Mapping[str, Any]) -> Mapping[str, Any]:
    """The mapping of the only index behind a name. Raises IndexAbsentError for one that the server made itself.

    It did so for a document that came after `drop_guessed`; the next attempt drops it.
    """
    mapping: Mapping[str, Any] = _only(mappings)
    if mapping.get("dynamic") != "strict":
        raise IndexAbsentError(f"the server has made {', '.join(mappings)} by itself while it was prepared")
    return mapping


def _only(found: Mapping[str, T]) -> T:
    """The only index behind a name. Raises IndexAbsentError if there is none, because it was just removed."""
    for each in found.values():
        return each
    raise IndexAbsentError("an index was removed while it was prepared")

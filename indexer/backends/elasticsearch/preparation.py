"""Preparation of the Elasticsearch indexes: what is missing is made, and what is void is forgotten."""

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
    """Of the indexes of one writer, which writes to `target`. Raises as IndexWriter.prepare does."""

    def __init__(self, client: Client, names: Names, settings: IndexSettings, target: Target) -> None:
        self._client = client
        self._names = names
        self._settings = settings
        self._target = target

    def prepare(self) -> None:
        """As of IndexWriter; two processes may do so at once."""
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
        """What says that a cell is whole is in the index itself, so nothing is believed of one that is new."""
        if not mappings_of(self._client, self._names.items):
            aliases = {self._names.items: {"is_write_index": True}}
            self._create(f"{self._names.items}-v1", shape_of_items(self._client.dialect), aliases=aliases)

    def _settle_instances(self) -> str:
        """The physical index of instances, with every field that we write, and our aliases on it alone.

        What the alias for writing stands for is right. Where it does not say, the index of the progress names one;
        where that is not there either, one is made.
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
        """Whether there is that index already, with every field that we write."""
        indexes = mappings_of(self._client, physical)
        require_usable(indexes)
        for name, mapping in indexes.items():
            wanted = instance_mapping()
            if not wanted["properties"].keys() <= mapping["properties"].keys():
                # What a rebuild has noted there stays.
                wanted["_meta"] = mapping["_meta"] | wanted["_meta"]
                send(self._client, "PUT", f"/{name}/_mapping", wanted)
        return bool(indexes)

    def _agree_on_physical_index(self) -> str:
        """The name of the index that is to be made: the process that makes the index of the progress decides."""
        if not mappings_of(self._client, self._names.progress):
            self._create_progress(new_physical_name(self._names))
        mapping = _ours(mappings_of(self._client, self._names.progress))
        return str(mapping["_meta"]["instances_index"])

    def _create_progress(self, physical: str) -> None:
        self._create(self._names.progress, shape_of_progress(self._client.dialect, physical))

    def _settle_progress(self, physical: str) -> None:
        """An index of the progress that names `physical`, and says of each progress which index it is about."""
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
        """Progress and facts about an index that is not there any more: it was removed or replaced."""
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
        """Put right how those of our indexes are that are behind some names: settings, mappings and aliases.

        What a server does not change any more stays (`Deviations.final`).
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
        """Create an index unless it is there; returns when it can be used."""
        body = shape.body(shards=shards, replicas=self._settings.replicas)
        try:
            send(self._client, "PUT", f"/{name}", {**body, "aliases": aliases or {}})
        except IndexExistsError:
            # Another process has created it, perhaps just now: wait as creating it would have waited.
            send(self._client, "POST", f"/{name}/_open?wait_for_active_shards=1")


def remove_all(client: Client, index: str, query: Mapping[str, Any]) -> None:
    """Remove what a query finds, of an index that is not sealed."""
    send(client, "POST", f"/{index}/_delete_by_query?refresh=true&conflicts=proceed", {"query": query})


def _ours(mappings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of the one index of a name; raises IndexAbsentError for what the server has made since `drop_guessed`.

    A document has come too early for it. The next attempt drops it.
    """
    mapping: Mapping[str, Any] = _only(mappings)
    if mapping.get("dynamic") != "strict":
        raise IndexAbsentError(f"the server has made {', '.join(mappings)} by itself while it was prepared")
    return mapping


def _only(found: Mapping[str, T]) -> T:
    """Of the one index of a name; raises IndexAbsentError while there is none, as when it is removed just now."""
    for each in found.values():
        return each
    raise IndexAbsentError("an index was removed while it was prepared")

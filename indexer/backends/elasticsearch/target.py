"""The physical index that a writer writes to: the one that it has prepared, and no other before it has looked at that
one.

A rebuild may put another index in its place, even one of another program's version, in which documents of this one
would do harm. So documents are not sent to the alias that all writers share but to one that each physical index has for
itself; the index that was replaced takes none any more.

Another index in the place of one of ours, a restored one or none takes the truth from all that was
promised of it: progress belongs to physical indexes, by their uuids, and to no names.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from fleetlight.indexer.backends.elasticsearch.client import Client, send
from fleetlight.indexer.backends.elasticsearch.mapping import CONTINUES
from fleetlight.indexer.backends.elasticsearch.names import Names
from fleetlight.indexer.backends.elasticsearch.physical import PhysicalIndex, alias_changes, behind, physical_indexes
from fleetlight.indexer.backends.elasticsearch.versions import require_usable
from fleetlight.indexer.errors import IndexAbsentError, IndexReplacedError, IndexUnavailableError

_decode = msgspec.json.Decoder().decode


def mappings_of(client: Client, name: str) -> dict[str, Any]:
    """Mappings by physical index of an index or alias; empty when there is none of that name."""
    answer = send(client, "GET", f"/{name}/_mapping?ignore_unavailable=true")
    return {index: found["mappings"] for index, found in _decode(answer).items()}


def index_uuid(client: Client, name: str) -> str:
    """The uuid of the physical index behind a name, which no other one ever has."""
    [found] = _decode(send(client, "GET", f"/{name}/_settings/index.uuid")).values()
    return str(found["settings"]["index"]["uuid"])


@dataclass(frozen=True, slots=True)
class IndexIdentity:
    """The physical indexes that what is promised of cells is about, by their uuids.

    instances: that of the instances. continued: the one that a rebuild has filled it from, which had no more; None if
    none has. state: that of the facts, without which a progress does not say enough.
    """

    instances: str
    continued: str | None
    state: str

    @property
    def all_instances(self) -> tuple[str, ...]:
        return (self.instances,) if self.continued is None else (self.instances, self.continued)


@dataclass(frozen=True, slots=True)
class _WriterState:
    """What a writer relies on. items: the uuid of their index."""

    physical: str
    owner: IndexIdentity
    items: str


def give_progress_to(client: Client, progress: str, owner: IndexIdentity, query: Mapping[str, Any]) -> None:
    """Have what was saved in the index `progress`, where `query` finds it, be about these physical indexes."""
    source = "ctx._source.index_uuid = params.index; ctx._source.state_uuid = params.state"
    script = {"source": source, "params": {"index": owner.instances, "state": owner.state}}
    path = f"/{progress}/_update_by_query?refresh=true&conflicts=proceed"
    send(client, "POST", path, {"query": query, "script": script})


class Target:
    """The physical index behind the alias `names.write`, once it is taken; `alias` is where documents are sent."""

    def __init__(self, client: Client, names: Names) -> None:
        self._client = client
        self._names = names
        self._taken: _WriterState | None = None
        self.alias = names.write

    @property
    def owner(self) -> IndexIdentity:
        """What progress is saved of, and believed of; looked up each time by a writer that has taken nothing."""
        return self._look()[0].owner if self._taken is None else self._taken.owner

    def take(self) -> None:
        """Raises IndexVersionError, and IndexAbsentError where something is missing."""
        taken, instances = self._look()
        require_usable({taken.physical: {"_meta": instances.meta}})
        alias = f"{taken.physical}-write"
        if alias not in instances.aliases:
            send(self._client, "PUT", f"/{taken.physical}/_alias/{alias}")
        self.alias = alias
        self._taken = taken

    def keep_up(self) -> None:
        """Take what a rebuild has put in the place of the index that was taken; nothing to do while that is there.

        Raises IndexReplacedError when anything else is not as it was taken: an index or an alias is not there, or
        stands for another one. Raises IndexVersionError, and IndexUnavailableError while one is closed.
        """
        before = self._taken
        if before is None:
            return
        names = self._names
        found = physical_indexes(self._client, names.read, names.write, names.state, names.items, names.progress)
        if closed := [name for name, index in found.items() if index.is_closed]:
            raise IndexUnavailableError(f"closed: {', '.join(closed)}")
        has_progress = behind(found, names.progress) is not None
        try:
            now, instances = self._among(found)
        except IndexAbsentError as error:
            raise IndexReplacedError(names.write) from error
        is_same = (now.owner.instances, now.owner.state, now.items) == (
            before.owner.instances,
            before.owner.state,
            before.items,
        )
        are_aliases_right = not alias_changes(found, now.physical, names.read, names.write)
        if is_same and has_progress and are_aliases_right and self.alias in instances.aliases:
            return
        if now.owner.instances != before.owner.instances:
            require_usable({now.physical: {"_meta": instances.meta}})
            if now.owner.continued == before.owner.instances and now.owner.state == before.owner.state:
                self.take()
                return
        raise IndexReplacedError(names.write)

    def _look(self) -> tuple[_WriterState, PhysicalIndex]:
        return self._among(physical_indexes(self._client, self._names.write, self._names.state, self._names.items))

    def _among(self, found: Mapping[str, PhysicalIndex]) -> tuple[_WriterState, PhysicalIndex]:
        """Raises IndexAbsentError unless there is one of each."""
        names = self._names
        state, items = behind(found, names.state), behind(found, names.items)
        written = [name for name, index in found.items() if names.write in index.aliases]
        if state is None or items is None or len(written) != 1:
            raise IndexAbsentError(
                f"not all of the indexes behind {names.write}, {names.state} and {names.items} are there"
            )
        [physical] = written
        instances = found[physical]
        owner = IndexIdentity(instances.uuid, instances.meta.get(CONTINUES), state.uuid)
        return _WriterState(physical, owner, items.uuid), instances

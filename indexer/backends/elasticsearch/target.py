"""The physical index that a writer writes to: the one it has prepared, until it has checked another one.

A rebuild may replace the index, even by one of another program's version, which this program's documents would harm.
So documents are not sent to the alias that all writers share, but to one that belongs to the physical index; a
replaced index accepts none. If one of our indexes is replaced, restored or removed, nothing promised about it holds:
progress belongs to physical indexes, by their uuids, and not to names.
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
    """The mappings of an index or alias by physical index; empty if there is none of that name."""
    answer = send(client, "GET", f"/{name}/_mapping?ignore_unavailable=true")
    return {index: found["mappings"] for index, found in _decode(answer).items()}


def index_uuid(client: Client, name: str) -> str:
    """The uuid of the physical index behind a name; no other index ever has the same."""
    [found] = _decode(send(client, "GET", f"/{name}/_settings/index.uuid")).values()
    return str(found["settings"]["index"]["uuid"])


@dataclass(frozen=True, slots=True)
class IndexIdentity:
    """The physical indexes to which the promises about cells refer, by their uuids.

    instances: the index of instances. continued: the index from which a rebuild has filled it, and which had no more;
    None without a rebuild. state: the index of facts, without which a progress does not say enough.
    """

    instances: str
    continued: str | None
    state: str

    @property
    def all_instances(self) -> tuple[str, ...]:
        return (self.instances,) if self.continued is None else (self.instances, self.continued)


@dataclass(frozen=True, slots=True)
class _WriterState:
    """The indexes that a writer relies on. items: the uuid of the index of items."""

    physical: str
    owner: IndexIdentity
    items: str


def give_progress_to(client: Client, progress: str, owner: IndexIdentity, query: Mapping[str, Any]) -> None:
    """Reassign those saved progresses in the index `progress` that `query` finds to these physical indexes."""
    source = "ctx._source.index_uuid = params.index; ctx._source.state_uuid = params.state"
    script = {"source": source, "params": {"index": owner.instances, "state": owner.state}}
    path = f"/{progress}/_update_by_query?refresh=true&conflicts=proceed"
    send(client, "POST", path, {"query": query, "script": script})


class Target:
    """The physical index behind the alias `names.write`, once taken. Documents are sent to `alias`."""

    def __init__(self, client: Client, names: Names) -> None:
        self._client = client
        self._names = names
        self._taken: _WriterState | None = None
        self.alias = names.write

    @property
    def owner(self) -> IndexIdentity:
        """The indexes of our progress; a writer that has taken no index yet looks them up each time."""
        return self._look()[0].owner if self._taken is None else self._taken.owner

    def take(self) -> None:
        """Take the current indexes. Raises IndexVersionError, and IndexAbsentError if one is missing."""
        taken, instances = self._look()
        require_usable({taken.physical: {"_meta": instances.meta}})
        alias = f"{taken.physical}-write"
        if alias not in instances.aliases:
            send(self._client, "PUT", f"/{taken.physical}/_alias/{alias}")
        self.alias = alias
        self._taken = taken

    def keep_up(self) -> None:
        """Take the index by which a rebuild has replaced ours; does nothing while ours is there.

        Raises IndexReplacedError for any other change: an index or alias is missing, or refers to another index. Raises
        IndexVersionError, and IndexUnavailableError while an index is closed.
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
        """Find our indexes among `found`. Raises IndexAbsentError unless there is one of each."""
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

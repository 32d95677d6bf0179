"""What an indexer keeps in the fleet database, in memory: leases, failures and journals. It can be made to fail."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import uuid4

from fleetlight.cells.epochs import Position
from fleetlight.cells.errors import FleetUnreachableError
from fleetlight.cells.fleet.announced_instances import AnnouncedInstance
from fleetlight.cells.fleet.failures import Failure
from fleetlight.cells.fleet.journals import DetectedChange


@dataclass(kw_only=True)
class _OfDatabase:
    """is_away: the fleet database does not answer."""

    is_away: bool = False

    def _require_database(self) -> None:
        if self.is_away:
            raise FleetUnreachableError("it is away")


@dataclass
class MemoryLeases:
    """Leases (fleetlight.cells.database.leases) of one process among others. taken: name -> who else has it alone."""

    taken: dict[str, str] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)

    def acquire(self, name: str, *, shared: bool = False) -> bool:
        if name in self.taken or name in self.held:
            return False
        self.held.add(name)
        return True

    def holds(self, name: str) -> bool:
        return name in self.held

    def count(self, names: Collection[str]) -> Mapping[str, int]:
        return {name: 1 for name in names if self.holds(name)}

    def holders(self, names: Collection[str]) -> Mapping[str, Sequence[str]]:
        return {name: ["this process"] for name in names if self.holds(name)}

    def release(self, name: str) -> None:
        self.held.discard(name)

    def holder(self, name: str) -> str:
        return self.taken[name]

    def close(self) -> None:
        self.held.clear()


@dataclass
class MemoryFailures(_OfDatabase):
    """The failures of a fleet (fleetlight.cells.fleet.failures)."""

    kept: dict[str, Failure] = field(default_factory=dict)
    reread: list[str] = field(default_factory=list)

    def add(self, found: Sequence[Failure]) -> None:
        self._require_database()
        for failure in found:
            known = self.kept.get(failure.id)
            if known is None:
                self.kept[failure.id] = failure
                continue
            owner, times = known.summary.cell_uuid, known.summary.times
            times += failure.summary.times if failure.summary.cell_uuid == owner else 0
            self.kept[failure.id] = replace(failure, summary=replace(failure.summary, times=times, cell_uuid=owner))

    def mark_reread(self, cell_uuid: str, instance_uuids: Collection[str], at: int) -> None:
        self._require_database()
        self.reread += instance_uuids

    def drop(self, ids: Collection[str]) -> int:
        for each in ids:
            del self.kept[each]
        return len(ids)

    def counts(self) -> Mapping[str, int]:
        self._require_database()
        return Counter(failure.summary.cell_uuid for failure in self.kept.values())

    def dropped(self) -> Mapping[str, int]:
        self._require_database()
        return {}

    @property
    def found(self) -> list[tuple[bytes, str, str]]:
        """Of each failure the body, the reason and the detail."""
        return [(each.body, each.summary.reason, each.summary.detail) for each in self.kept.values()]


@dataclass
class MemoryOwners(_OfDatabase):
    """Where instances live, by uuid, and the cells of a deployment by their uuids there."""

    cells: dict[str, str] = field(default_factory=dict)
    of_deployment: dict[str, str] = field(default_factory=dict)
    questions: int = 0

    def cells_of(self, instance_uuids: Collection[str]) -> Mapping[str, str]:
        self.questions += 1
        self._require_database()
        return {uuid: self.cells[uuid] for uuid in instance_uuids if uuid in self.cells}

    def living_elsewhere(self, cell_uuid: str, instance_uuids: Collection[str]) -> Mapping[str, str]:
        return {uuid: cell for uuid, cell in self.cells_of(instance_uuids).items() if cell != cell_uuid}

    def cells_of_deployment(self, api_database_url: str) -> Mapping[str, str]:
        return self.of_deployment


@dataclass
class MemoryAnnounced(_OfDatabase):
    """What only notifications tell of (fleetlight.cells.fleet.announced_instances): by uuid of one cell."""

    kept: dict[str, AnnouncedInstance] = field(default_factory=dict)

    def keep(self, cell_uuid: str, announced: Sequence[AnnouncedInstance]) -> None:
        self._require_database()
        for each in announced:
            known = self.kept.get(each.instance_uuid)
            if known is None or known.version < each.version:
                self.kept[each.instance_uuid] = each

    def versions(self, cell_uuid: str) -> Mapping[str, int]:
        self._require_database()
        return {uuid: each.version for uuid, each in self.kept.items()}

    def read(self, cell_uuid: str, instance_uuids: Collection[str]) -> list[AnnouncedInstance]:
        self._require_database()
        return [self.kept[uuid] for uuid in instance_uuids if uuid in self.kept]

    def forget(self, cell_uuid: str, instance_uuids: Collection[str]) -> None:
        self._require_database()
        for uuid in instance_uuids:
            self.kept.pop(uuid, None)

    def prune(self, cell_uuid: str, horizon: int) -> None:
        self._require_database()


@dataclass
class MemoryJournals(_OfDatabase):
    """The journals of a fleet (fleetlight.cells.fleet.journals), which keep everything."""

    announced: MemoryAnnounced = field(default_factory=MemoryAnnounced)

    epochs: dict[str, str] = field(default_factory=dict)
    found: list[DetectedChange] = field(default_factory=list)
    followed_at: dict[str, int] = field(default_factory=dict)
    sequence: int = 0

    def position(self, cell_uuid: str) -> Position | None:
        self._require_database()
        epoch = self.epochs.get(cell_uuid)
        return None if epoch is None else Position(epoch, self.sequence)

    def start_over(self, cell_uuid: str) -> str:
        self._require_database()
        self.found.clear()
        self.sequence = 0
        self.epochs[cell_uuid] = str(uuid4())
        return self.epochs[cell_uuid]

    def append(self, cell_uuid: str, detected_changes: Sequence[DetectedChange]) -> Position | None:
        self._require_database()
        if cell_uuid in self.epochs:
            self.found.extend(detected_changes)
            self.sequence += len(detected_changes)
        return self.position(cell_uuid)

    def confirm(self, cell_uuid: str, at: int) -> None:
        self._require_database()
        self.followed_at[cell_uuid] = at

"""Makes the mappings of a cell equal to its rows, when the cell is added and regularly afterwards.

The rows are right, since the cell decides which instances it has. Mappings differ from them after the fleet database
was restored from an older copy, or created anew. A creation or deletion under way makes no difference, since it changes
the mapping first.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fleetlight.cells.batched import batched
from fleetlight.cells.errors import InstanceExistsError, UnreadableRowError
from fleetlight.cells.fleet.fleet import Fleet, InstanceMapping
from fleetlight.cells.model import CellAdapter, InstanceRow
from fleetlight.query.filters import EVERYTHING, In
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import INSTANCES_BY_UUID
from fleetlight.resources.clock import Clock, system_clock
from fleetlight.resources.fields import Record
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

# How often workers compare. A million instances take 24 s on PostgreSQL, 13 of them in this process: 4 % of a
# processor.
COMPARISON_INTERVAL_S = 600.0
_BATCH_SIZE = 500
_FIELDS = (*InstanceMapping.FIELDS, "vm_state", "task_state")
_SOFT_DELETED = "soft-delete"
# A creation maps an instance before its row is visible, and takes far less than this.
_CREATION_US = 3600 * MICROSECONDS_PER_SECOND


@dataclass(frozen=True, slots=True)
class MappingDifferences:
    """The result of a comparison, as uuids. rows: number compared.

    missing: rows without a mapping. changed: rows whose mapping differs. gone: mappings of instances that the cell does
    not have. elsewhere: rows whose mapping names another cell, with that cell; these are left as they are.
    """

    rows: int = 0
    missing: Collection[str] = ()
    changed: Collection[str] = ()
    gone: Collection[str] = ()
    elsewhere: Mapping[str, str] = field(default_factory=dict)

    @property
    def repairable(self) -> int:
        """The number of differences that a repair corrects."""
        return len(self.missing) + len(self.changed) + len(self.gone)

    def __add__(self, other: "MappingDifferences") -> "MappingDifferences":
        return MappingDifferences(
            self.rows + other.rows,
            [*self.missing, *other.missing],
            [*self.changed, *other.changed],
            [*self.gone, *other.gone],
            {**self.elsewhere, **other.elsewhere},
        )


@dataclass(slots=True)
class _Pass:
    """The progress of one comparison. after: its position. suspects: rows whose mapping is queued for deletion without
    a visible reason. found: the differences so far. live: the number of mappings of living instances with a row.
    """

    after: tuple[Any, ...] | None = None
    found: MappingDifferences = field(default_factory=MappingDifferences)
    live: int = 0
    suspects: set[str] = field(default_factory=set)


class MappingComparison:
    """Compares all mappings of a cell with its rows, one page at each step, and then from the beginning again.

    If a mapping says that a living instance is queued for deletion, it counts as different only after two comparisons
    have found it so, and if nothing is being done to the instance. repair: whether differences are corrected. clock:
    Unix time in microseconds.
    """

    def __init__(self, adapter: CellAdapter, fleet: Fleet, *, repair: bool, clock: Clock = system_clock) -> None:
        self._adapter = adapter
        self._cell_uuid = adapter.cell.uuid
        self._fleet = fleet
        self._repair = repair
        self._clock = clock
        self._suspects: set[str] = set()
        self._pass = _Pass()

    def step(self) -> MappingDifferences | None:
        """Compare the next page. Returns None while there are more, and all differences with the last one.

        The step after that begins anew. Raises CellUnreachableError and FleetUnreachableError; the page is then
        repeated.
        """
        # Read rows first: an instance is mapped before its row becomes visible.
        now = self._pass
        rows = self._adapter.read_page(
            PageRequest(EVERYTHING, INSTANCES_BY_UUID, _BATCH_SIZE, now.after, fields=_FIELDS)
        )
        found, live = self._compared(rows)
        is_last = len(rows) < _BATCH_SIZE
        if is_last:
            found += self._surplus(now.live + live)
        now.found += found
        now.live += live
        if not is_last:
            now.after = INSTANCES_BY_UUID.values(rows[-1].record)
            return None
        self._suspects = now.suspects
        self._pass = _Pass()
        return now.found

    def _compared(self, rows: Sequence[InstanceRow]) -> tuple[MappingDifferences, int]:
        """The differences of these rows, and how many of their mappings count as those of living instances."""
        known = self._fleet.mappings_of([row.uuid for row in rows])
        missing: list[InstanceMapping] = []
        changed: list[InstanceMapping] = []
        elsewhere: dict[str, str] = {}
        live = 0
        for row in rows:
            mapping = known.get(row.uuid)
            if mapping is not None and mapping.cell_uuid != self._cell_uuid:
                elsewhere[row.uuid] = mapping.cell_uuid
                continue
            wanted = self._wanted(row, mapping)
            standing = wanted if self._repair else mapping
            live += standing is not None and not standing.queued_for_delete
            if wanted is None or wanted == mapping:
                continue
            (missing if mapping is None else changed).append(wanted)
        if self._repair:
            elsewhere |= self._put(missing, changed)
        there = [mapping.instance_uuid for mapping in missing if mapping.instance_uuid not in elsewhere]
        found = MappingDifferences(
            len(rows), there, [mapping.instance_uuid for mapping in changed], elsewhere=elsewhere
        )
        return found, live

    def _wanted(self, row: InstanceRow, known: InstanceMapping | None) -> InstanceMapping | None:
        """The right mapping for a row; the known one if the row is damaged."""
        try:
            if known is not None and _says_the_same(known, row.record):
                return known
            wanted = InstanceMapping.of(row, self._clock())
            if known is None:
                return wanted
            wanted = replace(wanted, created_at=known.created_at)
            if wanted.queued_for_delete or not known.queued_for_delete:
                return wanted
            # It is queued, but its row is not deleted: a deletion may be about to come, or to end.
            is_ordered = row.record["task_state"] is not None or row.record["vm_state"] == _SOFT_DELETED
        except UnreadableRowError:
            return known
        if not is_ordered:
            self._pass.suspects.add(row.uuid)
        return wanted if not is_ordered and row.uuid in self._suspects else known

    def _put(self, missing: Sequence[InstanceMapping], changed: Sequence[InstanceMapping]) -> Mapping[str, str]:
        """Repair these; returns those missing ones that another cell has meanwhile, with that cell."""
        elsewhere: Mapping[str, str] = {}
        try:
            self._fleet.add_mappings(missing)
        except InstanceExistsError as error:
            elsewhere = self._fleet.cells_of(error.uuids)
            self._fleet.add_mappings([each for each in missing if each.instance_uuid not in elsewhere])
        self._fleet.update_mappings(changed)
        return elsewhere

    def _surplus(self, live: int) -> MappingDifferences:
        """Mappings of living instances that the cell does not have. live: number of those that it has."""
        if self._fleet.count_mappings(self._cell_uuid) <= live:
            return MappingDifferences()
        gone: list[str] = []
        after = ""
        while mappings := self._fleet.mappings_of_cell(self._cell_uuid, after=after, limit=_BATCH_SIZE):
            after = mappings[-1].instance_uuid
            last = self._clock() - _CREATION_US
            old = [mapping.instance_uuid for mapping in mappings if mapping.created_at < last]
            there = {row.uuid for row in self._rows(old)}
            gone += [uuid for uuid in old if uuid not in there]
        if self._repair:
            for uuids in batched(gone, _BATCH_SIZE):
                self._fleet.mark_queued_for_delete(self._cell_uuid, uuids)
        return MappingDifferences(gone=gone)

    def _rows(self, uuids: Sequence[str]) -> Sequence[InstanceRow]:
        if not uuids:
            return ()
        return self._adapter.read_page(
            PageRequest(In("uuid", tuple(uuids)), INSTANCES_BY_UUID, len(uuids), fields=("uuid",))
        )


def _says_the_same(known: InstanceMapping, record: Record) -> bool:
    told = record["project_id"], record["user_id"], bool(record["deleted"])
    return (known.project_id, known.user_id, known.queued_for_delete) == told


def compare_mappings(adapter: CellAdapter, fleet: Fleet, *, repair: bool) -> MappingDifferences:
    """Compare all mappings of a cell at once. Raises CellUnreachableError and FleetUnreachableError."""
    comparison = MappingComparison(adapter, fleet, repair=repair)
    while (found := comparison.step()) is None:
        pass
    return found


def map_instances(adapter: CellAdapter, fleet: Fleet) -> int:
    """Map the instances of a cell, including deleted ones, in the fleet database; returns their number.

    Can be repeated. Raises CellUnreachableError, FleetUnreachableError, and InstanceExistsError for an instance that
    another cell has; the others are then mapped.
    """
    found = compare_mappings(adapter, fleet, repair=True)
    if found.elsewhere:
        raise InstanceExistsError(sorted(found.elsewhere))
    return found.rows

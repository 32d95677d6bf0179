"""The words of the cells as values: a cell, a row of it, a change, and what every kind of cell can be asked."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import msgspec

from fleetlight.cells.capabilities import CAPABILITIES, Capabilities, CellKind
from fleetlight.cells.digests import RangeDigest
from fleetlight.cells.epochs import EpochHistory, Position
from fleetlight.cells.errors import UnreadableRowError
from fleetlight.cells.node_capacity import NodeCapacity
from fleetlight.query.counts import CountRequest, Counts
from fleetlight.query.page import PageRequest
from fleetlight.resources.fields import Record
from fleetlight.resources.instance import INSTANCE_FIELDS

NO_REVISION = 0
"""The revision of a notification of other software, which a cell only passes on: it is about none of its rows."""

FIRST_REVISION = 1
"""That of an instance which was just made."""

NO_INSTANCE = "00000000-0000-0000-0000-000000000000"
"""A uuid that no instance has: asking for it costs next to nothing."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One failure domain.

    database_url: SQLAlchemy URL of its database (native, nova-db); may hold a password, so never log it.
    transport_url: kombu URL of its bus; `memory://` is the bus inside the process of `fleetlight up`; empty: none.
    api_database_url: of a cell of Nova (nova-db), the URL of the deployment's API database. A cell that has no other
        database stands for the servers that no cell of Nova has yet.
    nova_uuid: of a cell of Nova, the uuid that it has there; cell0 has the same one in every deployment.
    number: what tells its jobs from those of other cells (fleetlight.cells.job_numbers); 0 of a cell that the registry
        lacks.
    takes_announcements: whether instances become servers that its database does not have, and that its producers
        announce (fleetlight.cells.fleet.producer_keys). Of a cell without revisions only rows become servers, whatever
        this says.
    deployment_cells: of what stands for servers that no cell of Nova has yet, which cells of its deployment are in the
        fleet, by their uuids there; None of another cell, and of one that the fleet did not name.
    """

    uuid: str
    name: str
    kind: CellKind
    database_url: str
    transport_url: str
    disabled: bool = False
    api_database_url: str | None = None
    nova_uuid: str | None = None
    number: int = 0
    takes_announcements: bool = False
    deployment_cells: frozenset[str] | None = None

    @property
    def can(self) -> Capabilities:
        """What it can be asked and ordered to do."""
        return CAPABILITIES[self.kind]

    @property
    def untold_fields(self) -> frozenset[str]:
        """Fields of an instance that nothing which is read of it tells."""
        return self.can.unknown_fields | (frozenset() if self.api_database_url else self.can.fields_of_deployment)

    @property
    def is_before_cells(self) -> bool:
        """Whether this stands for the servers of a Nova deployment that no cell has yet."""
        return self.can.maps_instances and self.database_url == self.api_database_url

    def __repr__(self) -> str:
        return f"Cell({self.name!r}, {self.uuid}, {self.kind})"


class DamagedRecord(Mapping[str, Any]):
    """The record of a damaged row: what cannot be read of it raises UnreadableRowError.

    readable: the other fields, `uuid` among them.
    """

    __slots__ = ("_cell", "_readable", "_reason")

    def __init__(self, cell: str, readable: Record, reason: str) -> None:
        self._cell = cell
        self._readable = readable
        self._reason = reason

    def __getitem__(self, name: str) -> Any:
        if name in INSTANCE_FIELDS and name not in self._readable:
            raise UnreadableRowError(self._cell, str(self._readable["uuid"]), self._reason)
        return self._readable[name]

    def __iter__(self) -> Iterator[str]:
        return iter(INSTANCE_FIELDS)

    def __len__(self) -> int:
        return len(INSTANCE_FIELDS)


class InstanceRow(msgspec.Struct, frozen=True, gc=False):
    """One instance as its cell has it.

    revision: +1 with each change, assigned under the row lock: the version that the index compares.
    record: field name -> stored value, every field of INSTANCE_FIELDS present unless fewer were asked for; of a damaged
        row a DamagedRecord.
    """

    cell_uuid: str
    revision: int
    record: Record

    @property
    def uuid(self) -> str:
        return str(self.record["uuid"])

    def __repr__(self) -> str:
        """Without the record, which has the user data."""
        return f"InstanceRow({self.uuid}, cell {self.cell_uuid}, revision {self.revision})"


class PartialRows(list[InstanceRow]):
    """Rows of a cell that may have more of them. lacks: why."""

    def __init__(self, rows: Sequence[InstanceRow], lacks: str) -> None:
        super().__init__(rows)
        self.lacks = lacks


class ItemRow(msgspec.Struct, frozen=True, gc=False):
    """One item of a type that an index has, as its cell has it; times are microseconds.

    revision: as of InstanceRow. record: what the announcement of the item would say of it; None of a damaged row, and
        then `problem` says why.
    """

    uuid: str
    revision: int
    record: Record | None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class ItemRows:
    """rows: all of a type, of one moment. has_unnumbered: whether a committed change of one has no sequence yet."""

    rows: Sequence[ItemRow]
    has_unnumbered: bool


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What asked for a change: the request's id, its user and its project."""

    request_id: str | None = None
    user_id: str | None = None
    project_id: str | None = None


NO_REQUEST = RequestContext()
"""The cell did it by itself."""


@dataclass(frozen=True, slots=True)
class Change:
    """One published change, as the cell's changelog keeps it: enough to publish it again, byte for byte.

    sequence: +1 with each published change of the cell, without holes.
    revision: NO_REVISION for a notification of other software (fleetlight.cells.kinds.native.outbox.append_external).
    message: the body of the notification (the oslo envelope, UTF-8 JSON).
    previous: the values that it replaced, by field; None of a new instance, and where they are not kept.
    """

    sequence: int
    instance_uuid: str
    revision: int
    routing_key: str
    message: bytes
    previous: Mapping[str, Any] | None = None


class CellAdapter(Protocol):
    """What every kind of cell can be asked. Calls block; they raise CellUnreachableError and nothing else."""

    @property
    def cell(self) -> Cell: ...

    def read_page(self, request: PageRequest) -> Sequence[InstanceRow]:
        """At most `request.limit` rows after `request.after`, in `request.order`; fewer means there are no more.

        Their records may lack what `request.fields` does not name, unless it is the uuid or a key of the order.
        PartialRows where the cell cannot say whether there are more.
        """
        ...

    def find(self, uuid: str) -> InstanceRow | None:
        """The row of one instance, also of a deleted one; None if the cell does not have it."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class DescribingAdapter(Protocol):
    """A cell that can tell how it would be asked."""

    def describe(self, request: PageRequest) -> Mapping[str, Any]:
        """The first statement of a page, compiled (`sql`, `values`), and whether rows are filtered afterwards too."""
        ...


@runtime_checkable
class CountingAdapter(CellAdapter, Protocol):
    """A cell whose database counts (fleetlight.cells.counting counts in all others)."""

    def count(self, request: CountRequest) -> Counts: ...


@runtime_checkable
class ItemsAdapter(CellAdapter, Protocol):
    """A cell that tells of more than its instances."""

    def read_items(
        self, item_type: str, fields: Collection[str], keys: Collection[Any] | None = None
    ) -> Sequence[Record]:
        """All items of a type (fleetlight.resources.query_fields.catalog) other than instances, in whichever order.

        A cell that takes changes, or is a cluster of Ganeti's, also has an item of the type
        fleetlight.resources.query_fields.cluster_parameters.CLUSTER.

        fields: names of those that are needed; a record may have others too. keys: values of the unique field of the
        items that are wanted, None for all; others may come too.
        A record has the values of its fields, times in microseconds; None for what an item does not have, and
        ResultStatus.NO_DATA or ResultStatus.OFFLINE in the place of what could not be fetched. It lacks what such a
        cell cannot know. Raises CellUnreachableError.
        """
        ...


@runtime_checkable
class DescribingItemsAdapter(Protocol):
    """A cell that can tell how it would be asked for its items."""

    def describe_items(
        self, item_type: str, fields: Collection[str], keys: Collection[Any] | None = None
    ) -> Mapping[str, Any]:
        """What `ItemsAdapter.read_items` asks: `statements`, each with `sql` and `values`, or `requests`.

        Raises CellUnreachableError.
        """
        ...


@runtime_checkable
class CapacityAdapter(CellAdapter, Protocol):
    """A cell that knows what its nodes have and what of it is taken."""

    def read_capacity(self) -> Sequence[NodeCapacity]:
        """Every node, in whichever order. Raises CellUnreachableError."""
        ...


@runtime_checkable
class ProbedAdapter(Protocol):
    """A cell that needs more than its own database to answer."""

    def probe(self) -> None:
        """Ask everything that a page needs, for next to nothing. Raises CellUnreachableError."""
        ...


@runtime_checkable
class ConfirmsInstances(Protocol):
    """A cell of a deployment that maps its instances to cells itself."""

    @property
    def cell(self) -> Cell: ...

    def confirm_here(self, uuids: Collection[str]) -> Collection[str]:
        """Those of `uuids` that live in this cell, as its deployment says. Raises CellUnreachableError."""
        ...

    def living_elsewhere(self, uuids: Collection[str]) -> Mapping[str, str]:
        """Those of `uuids` that live in another cell, and the uuid that this one has in its deployment, which says so.

        Raises CellUnreachableError.
        """
        ...


class LogPosition(msgspec.Struct, frozen=True):
    """A place between two commits in the log of a database server.

    file, offset: where. gtid: the numbers of the last commits before it, by which the server shows that its log is
    still the same. number: how many commits are before it. started_at: when the server was started, in seconds: one
    that was killed, or whose files were restored, may have lost rows of which its log still tells.
    """

    file: str
    offset: int
    gtid: str
    number: int
    started_at: int


Positions = Mapping[str, LogPosition]
"""Positions in the logs that a cell needs, by the address of each server."""


@dataclass(frozen=True, slots=True)
class Hints:
    """Which instances of a cell may differ from what was read of them before.

    uuids: instances that were touched; None: any may have been. at: the moment (microseconds) up to which nothing else
    was committed; None: other instances may differ too. Rows that are read after this was taken have all that these
    commits have made of them.
    positions, number: up to where in the logs those commits go, and as of LogPosition in that of the cell's own
    database; empty and None without a log.
    """

    uuids: frozenset[str] | None
    at: int | None
    positions: Positions = field(default_factory=dict)
    number: int | None = None


class ChangeHints(Protocol):
    """The hints about one cell, for one thread.

    is_continued: whether they go on from where they were asked to, so that nothing between is missing.
    """

    @property
    def is_continued(self) -> bool: ...

    def take(self) -> Hints | None:
        """All that has come since the last call; None if nothing has. Raises CommitLogError, CellUnreachableError."""
        ...

    def close(self) -> None: ...


class CommitHints(ChangeHints, Protocol):
    """Hints that name what every commit has touched, so that no notification is needed."""

    def wait(self, longest_s: float) -> None:
        """Wait until there is something to take."""
        ...


@runtime_checkable
class HintingAdapter(CellAdapter, Protocol):
    """A cell whose databases tell which of its instances each commit has touched."""

    @property
    def log_name(self) -> str:
        """The server whose log has most of it: one process reads that for all."""
        ...

    def follow_commits(self, after: Positions) -> CommitHints:
        """The hints from `after` on, as far as it names the logs that are needed. Raises CommitLogError."""
        ...


@runtime_checkable
class PolledAdapter(CellAdapter, Protocol):
    """A cell that can be asked now and then whether something has changed, or what."""

    def poll_changes(self) -> ChangeHints | None:
        """The hints from now on; None where this cell tells nothing."""
        ...


@runtime_checkable
class HostReportingAdapter(Protocol):
    """A cell of other software that knows what its hosts are like."""

    def host_statuses(self) -> Mapping[str, str]:
        """By host, `UP`, `DOWN`, `MAINTENANCE` or `UNKNOWN`. Raises CellUnreachableError."""
        ...


@runtime_checkable
class PastAdapter(CellAdapter, Protocol):
    """A cell that knows what its instances were like at a moment that is not long ago. Moments are microseconds."""

    def require_past(self, moment: int) -> None:
        """Raise PastNotKeptError unless `read_past_page` can answer now for that moment."""
        ...

    def read_past_page(self, request: PageRequest, moment: int) -> Sequence[InstanceRow]:
        """As `read_page`, of the instances as they were then, after all changes that were made up to that moment.

        Raises PastNotKeptError.
        """
        ...


@dataclass(frozen=True, slots=True)
class CellReport:
    """What a cell that numbers its changes says of itself, all of one moment.

    position: as of ChangelogAdapter. nodes, jobs_waiting, jobs_running: how many there are. keeps_past_since: the
    earliest moment (microseconds) that PastAdapter answers for; None before the first change.
    """

    position: Position
    nodes: int
    jobs_waiting: int
    jobs_running: int
    keeps_past_since: int | None


@runtime_checkable
class ReportingAdapter(CellAdapter, Protocol):
    """A cell that tells operators at once what they want to know of it."""

    def report(self) -> CellReport: ...


@runtime_checkable
class ChangelogAdapter(CellAdapter, Protocol):
    """A cell that numbers its changes, so that completeness can be proven by counting."""

    def scan(self, request: PageRequest) -> Sequence[InstanceRow]:
        """What `read_page` returns, for a caller that goes through many rows: each is made when it is asked for."""
        ...

    def position(self) -> Position:
        """The highest sequence that has been given out, and the newest epoch."""
        ...

    def published_sequence(self) -> int:
        """The highest sequence that has been given out; 0 when there were no changes yet."""
        ...

    def oldest_kept_sequence(self) -> int:
        """The lowest sequence that `changes_after` can still return; published_sequence() + 1 when none is kept."""
        ...

    def forgotten_until(self) -> int:
        """The latest moment, in microseconds, of a change that is not kept any more; 0 when all are kept."""
        ...

    def first_external_sequence(self, after: int) -> int | None:
        """The lowest kept sequence higher than `after` of a notification about an instance that has no row here."""
        ...

    def changes_after(self, sequence: int, limit: int) -> Sequence[Change]:
        """At most `limit` changes with a higher sequence than `sequence`, in order."""
        ...

    def epoch_history(self) -> EpochHistory:
        """Which history the sequences belong to."""
        ...

    def unnumbered(self, uuids: Collection[str]) -> Collection[str]:
        """Those of `uuids` that have a committed change without a sequence: no reader can know of it yet."""
        ...

    def unnumbered_since(self) -> int | None:
        """When the oldest change that has no sequence yet was committed, in microseconds; None without one."""
        ...

    def digests(self, prefixes: Sequence[str], length: int, *, horizon: int = 0) -> Mapping[str, RangeDigest]:
        """Digests of the rows whose uuid begins with one of `prefixes`, by its first `length` characters.

        length: of the prefixes, which are equally long, and one or two more. The database computes: no row is read. A
        shorter key is a whole uuid; what is empty is left out. So are rows that are forgotten at `horizon`
        (fleetlight.query.retention), here and in `revisions`.
        """
        ...

    def revisions(self, prefixes: Sequence[str], *, horizon: int = 0) -> Mapping[str, int]:
        """The revision by uuid of the rows whose uuid begins with one of `prefixes`."""
        ...

    def item_rows(self, item_type: str) -> ItemRows:
        """The items of one of the types in fleetlight.resources.indexed_items."""
        ...

"""The model of cells: a cell, its rows and changes, and the protocols of adapters for all kinds of cells."""

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
"""The revision of a notification of other software, which the relay of a cell forwards, and which is about no row."""

FIRST_REVISION = 1
"""The revision of a new instance."""

NO_INSTANCE = "00000000-0000-0000-0000-000000000000"
"""A uuid that no instance has: a cheap query for it shows whether a cell answers."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One failure domain.

    database_url: SQLAlchemy URL of its database (native, nova-db); may contain a password, so never log it.
    transport_url: kombu URL of its bus; `memory://` is the bus inside the process of `fleetlight up`; empty for none.
    api_database_url: of a cell of Nova (nova-db), the URL of the deployment's API database. A cell without another
        database stands for the servers that are in no cell of Nova yet.
    nova_uuid: of a cell of Nova, its uuid there; cell0 has the same one in every deployment.
    number: distinguishes its jobs from those of other cells (fleetlight.cells.job_numbers); 0 if it is not registered.
    takes_announcements: whether producers may announce servers that its database does not have
        (fleetlight.cells.fleet.producer_keys). In a cell without revisions only rows become servers in any case.
    deployment_cells: of a cell that stands for servers without a cell of Nova, the registered cells of its deployment,
        by their uuids there; None for other cells, and if the cell does not come from the registry.
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
        """The capabilities of its kind."""
        return CAPABILITIES[self.kind]

    @property
    def untold_fields(self) -> frozenset[str]:
        """Fields of its instances that no query of this cell can know."""
        return self.can.unknown_fields | (frozenset() if self.api_database_url else self.can.fields_of_deployment)

    @property
    def is_before_cells(self) -> bool:
        """Whether it stands for the servers of a Nova deployment that are in no cell yet."""
        return self.can.maps_instances and self.database_url == self.api_database_url

    def __repr__(self) -> str:
        return f"Cell({self.name!r}, {self.uuid}, {self.kind})"


class DamagedRecord(Mapping[str, Any]):
    """The record of a damaged row. Access to a field that cannot be read raises UnreadableRowError.

    readable: the other fields, including `uuid`.
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
    record: stored values by field; every field of INSTANCE_FIELDS, unless the request named fewer; for a damaged row a
        DamagedRecord.
    """

    cell_uuid: str
    revision: int
    record: Record

    @property
    def uuid(self) -> str:
        return str(self.record["uuid"])

    def __repr__(self) -> str:
        """Leaves out the record, which contains the user data."""
        return f"InstanceRow({self.uuid}, cell {self.cell_uuid}, revision {self.revision})"


class PartialRows(list[InstanceRow]):
    """Rows of a page that may be incomplete. lacks: why."""

    def __init__(self, rows: Sequence[InstanceRow], lacks: str) -> None:
        super().__init__(rows)
        self.lacks = lacks


class ItemRow(msgspec.Struct, frozen=True, gc=False):
    """One item of an indexed type, as its cell has it; times are microseconds.

    revision: as for InstanceRow. record: as an announcement of the item carries it; None if the row is damaged.
    problem: why it cannot be read.
    """

    uuid: str
    revision: int
    record: Record | None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class ItemRows:
    """All items of a type at one moment. has_unnumbered: whether a committed change of one has no sequence yet."""

    rows: Sequence[ItemRow]
    has_unnumbered: bool


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The origin of a change: id, user and project of the request."""

    request_id: str | None = None
    user_id: str | None = None
    project_id: str | None = None


NO_REQUEST = RequestContext()
"""The origin of a change that the cell made by itself."""


@dataclass(frozen=True, slots=True)
class Change:
    """One published change, as the cell's changelog keeps it: the relay can publish it again, byte for byte.

    sequence: +1 with each published change of the cell, without holes.
    revision: NO_REVISION for a notification of other software (fleetlight.cells.kinds.native.outbox.append_external).
    message: the body of the notification (the oslo envelope, UTF-8 JSON).
    previous: the values that it replaced, by field; None for a new instance, and if the cell does not keep them.
    """

    sequence: int
    instance_uuid: str
    revision: int
    routing_key: str
    message: bytes
    previous: Mapping[str, Any] | None = None


class CellAdapter(Protocol):
    """The queries that every kind of cell answers. Calls block; they raise CellUnreachableError and nothing else."""

    @property
    def cell(self) -> Cell: ...

    def read_page(self, request: PageRequest) -> Sequence[InstanceRow]:
        """At most `request.limit` rows after `request.after`, in `request.order`; fewer rows are the last page.

        Records may lack fields that `request.fields` does not name, except for the uuid and the keys of the order.
        Returns PartialRows if the cell cannot tell whether it has more rows.
        """
        ...

    def find(self, uuid: str) -> InstanceRow | None:
        """The row of one instance, which may be deleted; None if the cell does not have it."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class DescribingAdapter(Protocol):
    """A cell that can explain a query without running it."""

    def describe(self, request: PageRequest) -> Mapping[str, Any]:
        """The first statement of a page, compiled (`sql`, `values`), and whether rows are also filtered afterwards."""
        ...


@runtime_checkable
class CountingAdapter(CellAdapter, Protocol):
    """A cell whose database counts rows (fleetlight.cells.counting counts those of all others)."""

    def count(self, request: CountRequest) -> Counts: ...


@runtime_checkable
class ItemsAdapter(CellAdapter, Protocol):
    """A cell that has other items than instances."""

    def read_items(
        self, item_type: str, fields: Collection[str], keys: Collection[Any] | None = None
    ) -> Sequence[Record]:
        """All items of a type (fleetlight.resources.query_fields.catalog) other than instances, in any order.

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
    """A cell that can explain a query for its items without running it."""

    def describe_items(
        self, item_type: str, fields: Collection[str], keys: Collection[Any] | None = None
    ) -> Mapping[str, Any]:
        """The queries of `ItemsAdapter.read_items`: `statements`, each with `sql` and `values`, or `requests`.

        Raises CellUnreachableError.
        """
        ...


@runtime_checkable
class CapacityAdapter(CellAdapter, Protocol):
    """A cell that knows the capacity of its nodes."""

    def read_capacity(self) -> Sequence[NodeCapacity]:
        """The capacity of every node, in any order. Raises CellUnreachableError."""
        ...


@runtime_checkable
class ProbedAdapter(Protocol):
    """A cell that needs more than its own database to answer."""

    def probe(self) -> None:
        """Make a cheap query to everything that a page needs. Raises CellUnreachableError."""
        ...


@runtime_checkable
class ConfirmsInstances(Protocol):
    """A cell of a deployment that maps its instances to cells itself."""

    @property
    def cell(self) -> Cell: ...

    def confirm_here(self, uuids: Collection[str]) -> Collection[str]:
        """The instances that the deployment maps to this cell. Raises CellUnreachableError."""
        ...

    def living_elsewhere(self, uuids: Collection[str]) -> Mapping[str, str]:
        """The instances that the deployment maps to another cell, with the uuid of that cell in the deployment.

        Raises CellUnreachableError.
        """
        ...


class LogPosition(msgspec.Struct, frozen=True):
    """A position between two commits in the log of a database server.

    gtid: of the last commits before it, which proves that the server still has the same log. number: of commits before
    it. started_at: when the server was started, in seconds, since a server that was killed, or whose files were
    restored, may have lost rows that are still in its log.
    """

    file: str
    offset: int
    gtid: str
    number: int
    started_at: int


Positions = Mapping[str, LogPosition]
"""Positions in the logs of a cell, by the address of each server."""


@dataclass(frozen=True, slots=True)
class Hints:
    """Instances of a cell that may have changed since the last hints; rows that are read later have these changes.

    uuids: the touched instances; None for any. at: the moment (microseconds) up to which no others were touched; None
    if others may have been. positions: of the last of these commits, by log; empty without a log. number: as in
    LogPosition, in the log of the cell's own database; None without one.
    """

    uuids: frozenset[str] | None
    at: int | None
    positions: Positions = field(default_factory=dict)
    number: int | None = None


class ChangeHints(Protocol):
    """The hints about one cell; not thread-safe.

    is_continued: whether they begin at the requested position, so that none is missing in between.
    """

    @property
    def is_continued(self) -> bool: ...

    def take(self) -> Hints | None:
        """The hints since the last call; None if there are none. Raises CommitLogError and CellUnreachableError."""
        ...

    def close(self) -> None: ...


class CommitHints(ChangeHints, Protocol):
    """Hints that name the instances of every commit, so that the follower needs no notifications."""

    def wait(self, longest_s: float) -> None:
        """Wait until `take` has hints to return, at most `longest_s`."""
        ...


@runtime_checkable
class HintingAdapter(CellAdapter, Protocol):
    """A cell whose databases have logs that name the instances of each commit."""

    @property
    def log_name(self) -> str:
        """The server whose log has most commits of this cell; one process reads it for all cells."""
        ...

    def follow_commits(self, after: Positions) -> CommitHints:
        """The hints after these positions; a log without a position begins now. Raises CommitLogError."""
        ...


@runtime_checkable
class PolledAdapter(CellAdapter, Protocol):
    """A cell that tells, when polled, whether anything has changed, or what."""

    def poll_changes(self) -> ChangeHints | None:
        """The hints from now on; None if this cell has none."""
        ...


@runtime_checkable
class HostReportingAdapter(Protocol):
    """A cell of other software that knows the status of its hosts."""

    def host_statuses(self) -> Mapping[str, str]:
        """`UP`, `DOWN`, `MAINTENANCE` or `UNKNOWN` by host. Raises CellUnreachableError."""
        ...


@runtime_checkable
class PastAdapter(CellAdapter, Protocol):
    """A cell that knows its instances as of a recent moment. Moments are microseconds."""

    def require_past(self, moment: int) -> None:
        """Raises PastNotKeptError unless `read_past_page` can answer now for that moment."""
        ...

    def read_past_page(self, request: PageRequest, moment: int) -> Sequence[InstanceRow]:
        """As `read_page`, with the instances as they were after all changes up to that moment.

        Raises PastNotKeptError, and CellUnreachableError.
        """
        ...


@dataclass(frozen=True, slots=True)
class CellReport:
    """The state of a cell that numbers its changes, at one moment, for operators.

    position: as of ChangelogAdapter. nodes, jobs_waiting, jobs_running: numbers of them. keeps_past_since: the earliest
    moment (microseconds) for which PastAdapter answers; None before the first change.
    """

    position: Position
    nodes: int
    jobs_waiting: int
    jobs_running: int
    keeps_past_since: int | None


@runtime_checkable
class ReportingAdapter(CellAdapter, Protocol):
    """A cell that reports its state to operators by one query."""

    def report(self) -> CellReport: ...


@runtime_checkable
class ChangelogAdapter(CellAdapter, Protocol):
    """A cell that numbers its changes, so that counting proves completeness."""

    def scan(self, request: PageRequest) -> Sequence[InstanceRow]:
        """As `read_page`, for many rows: each is made when the caller reads it."""
        ...

    def position(self) -> Position:
        """The highest sequence, and the newest epoch."""
        ...

    def published_sequence(self) -> int:
        """The highest sequence; 0 if the cell has had no changes yet."""
        ...

    def oldest_kept_sequence(self) -> int:
        """The lowest sequence that `changes_after` can still return; published_sequence() + 1 if it has none."""
        ...

    def forgotten_until(self) -> int:
        """The latest moment (microseconds) of a change that was pruned, or kept without its previous values; else 0."""
        ...

    def first_external_sequence(self, after: int) -> int | None:
        """The lowest kept sequence above `after` of a notification about an instance that has no row here."""
        ...

    def changes_after(self, sequence: int, limit: int) -> Sequence[Change]:
        """At most `limit` changes with a higher sequence than `sequence`, in order."""
        ...

    def epoch_history(self) -> EpochHistory:
        """The epochs to which the sequences belong."""
        ...

    def unnumbered(self, uuids: Collection[str]) -> Collection[str]:
        """The instances that have a committed change without a sequence, which no reader can know yet."""
        ...

    def unnumbered_since(self) -> int | None:
        """When the oldest change without a sequence was committed, in microseconds; None if all have one."""
        ...

    def digests(self, prefixes: Sequence[str], length: int, *, horizon: int = 0) -> Mapping[str, RangeDigest]:
        """Digests of the rows whose uuid begins with one of `prefixes`, by the first `length` characters of the uuid.

        length: one or two more than that of the prefixes, which are equally long. The database computes digests without
        returning rows. A shorter key is a whole uuid; empty ranges are left out, and rows that are forgotten at
        `horizon` (fleetlight.query.retention), here and in `revisions`.
        """
        ...

    def revisions(self, prefixes: Sequence[str], *, horizon: int = 0) -> Mapping[str, int]:
        """The revisions, by uuid, of the rows whose uuid begins with one of `prefixes`."""
        ...

    def item_rows(self, item_type: str) -> ItemRows:
        """All items of an indexed type (fleetlight.resources.indexed_items)."""
        ...

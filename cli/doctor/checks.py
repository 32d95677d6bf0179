"""The doctor's checks of databases, buses, the index, clocks and disks.

All run at once, each with a deadline, so that one that hangs does not hold up the others.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from fleetlight.bus.external_exchange import split_address
from fleetlight.bus.link import broker_version, queue_states
from fleetlight.bus.settings import BusSettings
from fleetlight.bus.topology import MOST_WAITING, work_queue_name
from fleetlight.cells.daemon_threads import have_answered, in_background
from fleetlight.cells.database.engines import UPGRADE, create_database_engine
from fleetlight.cells.database_examination import DatabaseExamination, examine_database, file_of
from fleetlight.cells.errors import CellError, CellUnreachableError, FleetUnreachableError
from fleetlight.cells.findings import Finding, ok, unknown, wrong
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.opening import open_adapter, open_changelog_adapter
from fleetlight.cells.migrations import is_newer
from fleetlight.cells.model import Cell
from fleetlight.cli.fleet import is_in_process
from fleetlight.cli.opened_index import IndexedCells, read_index
from fleetlight.cli.postgresql_rights import ROLE_PREFIX
from fleetlight.cli.settings import Settings
from fleetlight.indexer.backends.base import LogState
from fleetlight.indexer.backends.opening import examine_index
from fleetlight.indexer.errors import IndexerError
from fleetlight.indexer.status import IndexHealth, read_status
from fleetlight.notifications.errors import BusError
from fleetlight.resources.clock import Clock
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

DEADLINE_S = 5.0
"""The deadline of a check that does not set its own."""
_CLOCK_LIMIT_S = 2.0
_DISK_PERCENT = 90
_GRANT = "`fleetlight accounts postgresql`, run by the owner of the databases, lets it"
START_DATABASE = "see that the server runs and can be reached from here, and that this account may log in"
_START_BUS = "see that RabbitMQ runs and can be reached from here, and that this account may log in"
_LISTS_GO_ON = "lists are answered by the cells meanwhile"
_START_INDEX = {
    "elasticsearch": f"see that Elasticsearch runs and can be reached from here; {_LISTS_GO_ON}",
    "opensearch": f"see that OpenSearch runs and can be reached from here; {_LISTS_GO_ON}",
    "sqlite": f"run `fleetlight indexer` or `fleetlight up`; the log says what it waits for; {_LISTS_GO_ON}",
}
_CATCH_UP = "see in the log and the metrics of the indexer what it waits for, or run another one"
LIMIT_QUEUES = 'give them a limit there: docs/operations/following-nova.md, "In Nova"'
FOLLOW = "run `fleetlight relay` and `fleetlight indexer`; their logs say what they wait for"
_REMEDIES: Mapping[IndexHealth, str] = {
    IndexHealth.UNKNOWN: "run `fleetlight indexer`; one that runs says in its log what it waits for",
    IndexHealth.INCOMPLETE: "an indexer fills it in; if `verify --repair` was cut off, run it again",
    IndexHealth.STALE: FOLLOW,
    IndexHealth.DEAD_LETTERS: "`fleetlight index failures list`",
    IndexHealth.UNREACHABLE: "its database and its bus have to answer first",
}


@dataclass(frozen=True, slots=True)
class Check:
    """about: what the finding is about if the check fails. run: raises an error to fail. remedy: what to do then."""

    about: str
    run: Callable[[], Sequence[Finding]]
    remedy: str
    deadline_s: float = DEADLINE_S


def answers(checks: Sequence[Check]) -> list[Finding]:
    """Run the checks and return their findings in order. Checks that hang stay in threads that end with the process."""
    running = [in_background(check.run, f"doctor-{check.about}") for check in checks]
    have_answered(running, max((check.deadline_s for check in checks), default=DEADLINE_S))

    def findings() -> Iterator[Finding]:
        for check, answer in zip(checks, running, strict=True):
            if not answer.done():
                yield wrong(check.about, f"no answer within {check.deadline_s:g} s", check.remedy)
                continue
            try:
                yield from answer.result()
            except (CellError, IndexerError, BusError, OSError) as error:
                yield wrong(check.about, str(error), check.remedy)

    return list(findings())


@dataclass
class IndexKnows:
    """Facts that one query gives for all cells: their progress in the index, and their kept dead letters.

    indexed: None until the index has answered.
    """

    indexed: IndexedCells | None = None
    dead_letters: Mapping[str, int] = field(default_factory=dict)


def fleet_check(settings: Settings, clock: Clock) -> Check:
    """Check the fleet database."""

    def run() -> Sequence[Finding]:
        url = settings.fleet.database_url.get_secret_value()
        engine = create_database_engine(url, must_exist=True, answer_timeout_s=DEADLINE_S, pool_size=1)
        try:
            found = examine_database(engine, "fleet", FleetUnreachableError, role_prefix=ROLE_PREFIX, clock=clock)
        finally:
            engine.dispose()
        return list(_of_database("fleet database", "fleet", found))

    return Check("fleet database", run, START_DATABASE)


def progress_check(settings: Settings, fleet: Fleet, known: IndexKnows) -> Check:
    """Check that the index answers; store each cell's progress and number of dead letters in `known`."""

    def run() -> Sequence[Finding]:
        known.indexed = read_index(settings.index)
        try:
            known.dead_letters = fleet.failures.counts()
        except FleetUnreachableError as error:
            # Most accounts may not read dead letters. If the whole database is down, its own check reports it.
            return [unknown("dead letters", error.reason)]
        return []

    deadline_s = max(DEADLINE_S, settings.index.search_timeout_s)
    return Check("progress of the index", run, _START_INDEX[settings.index.backend], deadline_s)


def cell_check(cell: Cell, clock: Clock) -> Check:
    """Check the database of a cell, or the service from which it is read."""
    about = f"cell {cell.name}"

    def run() -> Sequence[Finding]:
        if not cell.can.takes_changes:
            with closing(open_adapter(cell, statement_timeout_s=DEADLINE_S)) as adapter:
                adapter.find(cell.uuid)
            return [ok(about, f"answers ({cell.kind})")]
        engine = create_database_engine(
            cell.database_url, cell_uuid=cell.uuid, answer_timeout_s=DEADLINE_S, pool_size=1
        )
        try:
            unreachable = partial(CellUnreachableError, cell.name)
            found = examine_database(engine, "cell", unreachable, role_prefix=ROLE_PREFIX, clock=clock)
        finally:
            engine.dispose()
        return list(_of_database(about, "cell", found))

    return Check(about, run, START_DATABASE)


def bus_check(cells: Sequence[Cell], settings: BusSettings) -> Check:
    """Check the bus that these cells share."""
    about = f"bus of {', '.join(cell.name for cell in cells)}"

    def run() -> Sequence[Finding]:
        if is_in_process(cells[0]):
            return [unknown(about, "inside of `fleetlight up`: it cannot be seen from here")]
        has_others = not cells[0].can.numbers_changes
        version = broker_version(cells[0].transport_url, settings, has_others=has_others)
        return [ok(about, version), *_of_queues(cells, settings)]

    return Check(about, run, _START_BUS)


def _of_queues(cells: Sequence[Cell], settings: BusSettings) -> Sequence[Finding]:
    """Findings for queues that grow or have no reader: those of our cells, and of other software on the same bus."""
    _, binding = split_address(cells[0].transport_url)
    ours = [work_queue_name(cell.uuid) for cell in cells]
    # Nova's notifier creates a queue for each topic and priority, whether a program reads it or not.
    theirs = [] if cells[0].can.numbers_changes else [f"{topic}.info" for topic in binding.topics]
    found: list[Finding] = []
    for queue in queue_states(cells[0].transport_url, [*ours, *theirs], settings):
        says = f"{queue.messages:,} messages wait"
        if queue.name in theirs and queue.messages and not queue.readers:
            found.append(wrong(f"queue {queue.name}", f"{says} that no program reads", LIMIT_QUEUES))
        elif queue.messages and not queue.readers:
            found.append(wrong(f"queue {queue.name}", f"{says}, and no indexer reads them", FOLLOW))
        elif queue.messages > MOST_WAITING // 10 and queue.name in ours:
            limit = f"of at most {MOST_WAITING:,}, and then the oldest go, and are read from the cell"
            found.append(wrong(f"queue {queue.name}", f"{says}, {limit}", _CATCH_UP))
    return found


def index_check(settings: Settings) -> Check:
    """Check the index itself: server, name, aliases and disks."""

    def run() -> Sequence[Finding]:
        found = examine_index(settings.index, DEADLINE_S)
        problems = [wrong("index", problem.says, problem.remedy) for problem in found.problems]
        blind = [unknown("index", f"this account may not look at {what}") for what in found.unknown]
        name = "" if found.name is None else f", {found.name}"
        return [*([] if problems else [ok("index", f"{found.server}{name}")]), *problems, *blind]

    return Check("index", run, _START_INDEX[settings.index.backend])


def following_check(
    cell: Cell, indexed: IndexedCells, dead_letters: Mapping[str, int], settings: Settings, clock: Clock
) -> Check:
    """Check how far the index, in the state `indexed`, follows an enabled cell."""
    about = f"index of {cell.name}"

    def run() -> Sequence[Finding]:
        now, limit_s = clock(), settings.search.staleness_limit_s
        (status,) = read_status(
            [cell],
            indexed.progress,
            open_adapter=open_changelog_adapter,
            count_dead_letters=lambda cell: dead_letters.get(cell.uuid, 0),
            now=now,
            staleness_limit_s=limit_s,
            comparison_interval_s=settings.indexer.interval_s,
        )
        age = "" if status.age_s is None else f", as of {status.age_s:.1f} s ago"
        reason = indexed.why_live(cell, now=now, limit_s=limit_s)
        route = "" if reason is None else f"; lists ask the cell: {reason}"
        says = f"{age}, followed by {status.followed_by}{'' if status.log is None else _why(status.log)}{route}"
        if status.health is IndexHealth.OK:
            return [ok(about, f"complete{says}")]
        return [wrong(about, f"{status.health.value}{says}", _REMEDIES[status.health])]

    return Check(about, run, START_DATABASE)


def _why(log: LogState) -> str:
    return "" if log.problem is None else f", for the log of its database server is not read: {log.problem}"


def hosts_of(settings: Settings) -> Iterator[Finding]:
    """For which hosts each listener answers requests, by this configuration."""
    listeners = {"api": settings.api.served_hosts}
    if settings.monitoring.port is not None:
        listeners["monitoring"] = settings.monitoring.served_hosts
    for section, hosts in listeners.items():
        about, says = f"hosts of {section}", f"serves {hosts.meaning}"
        yield ok(about, says) if hosts.names is not None else unknown(about, f"{says}: {section}.hosts can limit that")


def disk_checks(settings: Settings, cells: Sequence[Cell]) -> list[Check]:
    """Check the disks with our own files; servers report on theirs themselves."""
    files = [file_of(settings.fleet.database_url.get_secret_value())]
    files += [file_of(cell.database_url) for cell in cells if cell.can.takes_changes]
    files += [str(settings.index.path)] if settings.index.backend == "sqlite" else []
    folders = {Path(file).absolute().parent for file in files if file is not None}
    return [Check(f"disk of {folder}", partial(_of_disk, folder), "see that the folder is there") for folder in folders]


def _of_disk(folder: Path) -> Sequence[Finding]:
    about, usage = f"disk of {folder}", shutil.disk_usage(folder)
    percent = 100 - 100 * usage.free // usage.total
    says = f"{percent} % full, {usage.free / 2**30:.1f} GiB free"
    return [wrong(about, says, "make room") if percent >= _DISK_PERCENT else ok(about, says)]


def _of_database(about: str, schema: str, found: DatabaseExamination) -> Iterator[Finding]:
    if found.revision is None:
        yield wrong(about, f"{found.server}, without tables", "`fleetlight database upgrade` makes them")
    elif is_newer(found.revision, schema):
        yield wrong(about, f"its tables ({found.revision}) are newer than this program", "run the newer version")
    elif found.revision != found.newest:
        yield wrong(about, f"its tables ({found.revision}) are older than this program ({found.newest})", UPGRADE)
    else:
        account = "" if found.account is None else f", as {found.account}"
        yield ok(about, f"{found.server}{account}")
    if found.lacks:
        yield wrong(about, f"{found.account} may not {', '.join(found.lacks)}", _GRANT)
    ahead_s = found.ahead_us / MICROSECONDS_PER_SECOND
    if abs(ahead_s) > _CLOCK_LIMIT_S:
        side = "ahead of" if ahead_s > 0 else "behind"
        yield wrong(
            about, f"its clock is {abs(ahead_s):.1f} s {side} that of this machine", "set both by a time server"
        )

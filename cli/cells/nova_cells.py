"""Add cells of Nova to the fleet: one, or all that an API database knows."""

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qs, urlsplit

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.errors import CellUnreachableError, CommitLogError, DatabaseUrlError, FleetUnreachableError
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.nova_db.databases import parse_nova_url
from fleetlight.cells.kinds.nova_db.deployment import Deployment, NovaCell, filled_in, with_account_of
from fleetlight.cells.kinds.nova_db.schema import check_schema
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.cells.model import NO_INSTANCE, Cell, HintingAdapter
from fleetlight.cli.cells.joined import Joined
from fleetlight.cli.cells.new_cell import checked_name
from fleetlight.cli.errors import CommandError, ConfigurationError
from fleetlight.indexer.followed_by import FollowedBy
from fleetlight.query.filters import In
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import INSTANCES_BY_UUID

_TEMPLATE = re.compile(r"\{\w+\}")
_RABBITMQ = {"rabbit", "kombu"}
_NO_BUS = {"", "none", "fake"}
_TRUE = {"1", "true", "yes", "on"}


@dataclass(frozen=True, slots=True)
class FoundBus:
    """address: ours, without an account; empty if there is no bus to follow. note: a remark for the operator."""

    address: str = ""
    note: str | None = None


def bus_of(transport_url: str | None) -> FoundBus:
    """Convert Nova's transport URL to our address of the bus, without the account: Nova's accounts are never used.

    Of several brokers the first is taken, since all brokers of a cluster deliver the same messages.
    """
    url = transport_url or ""
    if _TEMPLATE.search(url):
        return FoundBus(note="the address of its bus is a template; give --transport-url")
    try:
        parts = urlsplit(url)
        scheme, query = parts.scheme, parse_qs(parts.query)
    except ValueError:
        return FoundBus(note="the address of its bus cannot be read; give --transport-url")
    if scheme in _NO_BUS:
        return FoundBus()
    if scheme not in _RABBITMQ:
        return FoundBus(note=f"its bus is no RabbitMQ ({scheme}), so it is compared and hears of nothing")
    brokers = [broker.rpartition("@")[2] for broker in parts.netloc.split(",")]
    ours = "amqps" if query.get("ssl", [""])[0].lower() in _TRUE else "amqp"
    note = f"of its {len(brokers)} brokers {brokers[0]} is followed" if len(brokers) > 1 else None
    return FoundBus(f"{ours}://{brokers[0]}{parts.path}", note)


BUILD_REQUESTS = "build-requests"
_LOOKED_FOR = 500
_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class _Deployment:
    """The addresses that a cell gets from its deployment."""

    api_database_url: str = field(repr=False)
    transport_url: str = field(default="", repr=False)


def add_nova_cell(fleet: Fleet, name: str, database_url: str, api_database_url: str, transport_url: str) -> Joined:
    """Add one cell, found in its deployment by its name or by its database.

    Raises ConfigurationError, also if a known cell would get a database that has none of its servers, and CommandError
    if the API database cannot be read.
    """
    _check("--database-url", database_url)
    known = cells_of(api_database_url)
    deployment = _Deployment(api_database_url, transport_url)
    if _is_same_place(database_url, api_database_url):
        return _add(fleet, name, api_database_url, deployment, None)
    found = [cell for cell in known if cell.name == name]
    found += [cell for cell in known if cell not in found and _is_same_place(cell.database_url, database_url)]
    if not found:
        names = ", ".join(cell.name for cell in known) or "none"
        raise ConfigurationError(
            f"the API database knows no cell called '{name}', nor one with this database; it knows: {names}"
        )
    _require_its_servers(fleet, name, database_url, api_database_url, found[0].uuid)
    return _add(fleet, name, database_url, deployment, found[0].uuid)


def add_all_nova_cells(
    fleet: Fleet,
    api_database_url: str,
    *,
    main_database_url: str | None,
    transport_url: str,
    prefix: str,
    one_server: bool = False,
) -> Sequence[Joined]:
    """Add every cell of a deployment, and a cell for the build requests: servers that are in no cell yet.

    main_database_url: fills in addresses that are templates. transport_url: the bus of all cells; if empty, each cell
    keeps its bus, or gets the one that the deployment names. prefix: how the names of the cells begin. one_server:
    every cell is at the server of the API database, whatever server its address in Nova names.
    If the address of a cell cannot be read, a known cell keeps its address and a new one is added as down.
    Raises ConfigurationError, and CommandError if the API database cannot be read.
    """
    known = cells_of(api_database_url)
    addresses = addresses_of(known, api_database_url, main_database_url=main_database_url, one_server=one_server)
    in_fleet = {cell.name: cell for cell in fleet.cells()}
    buses = _Buses(in_fleet, api_database_url, transport_url)
    waiting = checked_name(prefix + BUILD_REQUESTS)
    bus_of_waiting = in_fleet[waiting].transport_url if waiting in in_fleet else ""
    joined = [_add(fleet, waiting, api_database_url, _Deployment(api_database_url, bus_of_waiting), None)]
    for cell in known:
        name = checked_name(prefix + cell.name)
        bus = buses.of(name, cell.uuid)
        notes = [] if bus.note is None else [bus.note]
        problem = None
        url = addresses[cell.uuid]
        if isinstance(url, DatabaseUrlError):
            error, url = url, in_fleet[name].database_url if name in in_fleet else ""
            if url:
                notes.append(f"it keeps its database: {error.reason}")
            else:
                problem = error.reason
        added = _add(fleet, name, url, _Deployment(api_database_url, bus.address), cell.uuid)
        joined.append(replace(added, problem=problem or added.problem, notes=tuple(notes)))
    return joined


@dataclass(frozen=True, slots=True)
class CheckedNovaCell:
    """The result of checking one cell of Nova.

    database_url: a secret; empty if unknown. unreadable: why its rows cannot be read, or None. log_problem: why the log
    of its database server cannot be followed, and how to change that, or None.
    """

    name: str
    database_url: str = field(repr=False)
    unreadable: str | None = None
    log_problem: str | None = None

    @property
    def followed_by(self) -> FollowedBy | None:
        """How an indexer would follow the cell; None if it cannot be read."""
        if self.unreadable is not None:
            return None
        return FollowedBy.LOG if self.log_problem is None else FollowedBy.COMPARISONS


def addresses_of(
    cells: Sequence[NovaCell], api_database_url: str, *, main_database_url: str | None, one_server: bool
) -> Mapping[str, str | DatabaseUrlError]:
    """The address of the database of each cell, by its uuid, or why it has none; arguments as of `add_all_nova_cells`.

    On one server, two cells with one name of a database would be one: each instance would be in both.
    """
    found: dict[str, str | DatabaseUrlError] = {}
    for cell in cells:
        try:
            url = filled_in(cell.database_url, main_database_url)
            url = with_account_of(url, api_database_url, at_its_server=one_server)
        except DatabaseUrlError as error:
            found[cell.uuid] = error
            continue
        other = next((each.name for each in cells if one_server and found.get(each.uuid) == url), None)
        reason = f"on one server its database would be that of {other}: leave --one-server away"
        found[cell.uuid] = url if other is None else DatabaseUrlError("…", reason)
    return found


def check_all_nova_cells(
    api_database_url: str, *, main_database_url: str | None, prefix: str, one_server: bool = False
) -> Sequence[CheckedNovaCell]:
    """Try to read the rows and the log of each cell that `add_all_nova_cells` would add; arguments as there.

    Nothing is added, and no fleet is needed.
    """
    known = cells_of(api_database_url)
    addresses = addresses_of(known, api_database_url, main_database_url=main_database_url, one_server=one_server)

    def check(name: str, nova: NovaCell | None) -> CheckedNovaCell:
        url = api_database_url if nova is None else addresses[nova.uuid]
        if isinstance(url, DatabaseUrlError):
            return CheckedNovaCell(name, "", unreadable=url.reason)
        uuid = None if nova is None else nova.uuid
        cell = Cell(
            uuid or NO_INSTANCE,
            name,
            CellKind.NOVA_DB,
            url,
            "",
            api_database_url=api_database_url,
            nova_uuid=uuid,
        )
        if (unreadable := _why_unreadable(cell)) is not None:
            return CheckedNovaCell(name, url, unreadable)
        return CheckedNovaCell(name, url, log_problem=_why_not_by_log(cell))

    names = [checked_name(prefix + name) for name in (BUILD_REQUESTS, *(cell.name for cell in known))]
    # In parallel, since a log is silent for up to a second.
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return list(threads.map(check, names, [None, *known]))


def _why_not_by_log(cell: Cell) -> str | None:
    with closing(open_adapter(cell)) as adapter:
        try:
            if isinstance(adapter, HintingAdapter):
                adapter.follow_commits({}).close()
        except CommitLogError as error:
            return error.reason
    return None


class _Buses:
    """The buses of a deployment's cells. in_fleet: cells by name; other arguments as for `add_all_nova_cells`."""

    def __init__(self, in_fleet: Mapping[str, Cell], api_database_url: str, transport_url: str) -> None:
        self._given = transport_url
        self._known = {name: cell.transport_url for name, cell in in_fleet.items()}
        self._urls: Mapping[str, str | None] = {}
        self._problem: str | None = None
        if transport_url:
            return
        try:
            with closing(Deployment(api_database_url)) as deployment:
                self._urls = deployment.transport_urls()
        except FleetUnreachableError as error:
            # The account may date from a time when the deployment's transport URLs were not read.
            self._problem = f"its bus is not known ({error.reason}); give --transport-url"

    def of(self, name: str, nova_uuid: str) -> FoundBus:
        if address := self._given or self._known.get(name):
            return FoundBus(address)
        return FoundBus(note=self._problem) if self._problem else bus_of(self._urls.get(nova_uuid))


def cells_of(api_database_url: str) -> Sequence[NovaCell]:
    """The cells that an API database knows. Raises ConfigurationError, CommandError."""
    _check("--api-database-url", api_database_url)
    with _reading_deployment(api_database_url) as deployment:
        return deployment.cells()


@contextmanager
def _reading_deployment(api_database_url: str) -> Iterator[Deployment]:
    """Open a deployment for reading. Raises CommandError if its API database cannot be read."""
    with closing(Deployment(api_database_url)) as deployment:
        try:
            yield deployment
        except FleetUnreachableError as error:
            raise CommandError(f"the API database of Nova cannot be read: {error.reason}") from error


def _require_its_servers(fleet: Fleet, name: str, database_url: str, api_database_url: str, nova_uuid: str) -> None:
    """Refuse a database that has none of the cell's newest servers: one that was moved or restored would have some.

    A database that cannot be read is accepted, since it may not be up yet. Raises ConfigurationError, CommandError.
    """
    before = next((cell for cell in fleet.cells() if (cell.name, cell.nova_uuid) == (name, nova_uuid)), None)
    if before is None or _is_same_place(before.database_url, database_url):
        return
    with _reading_deployment(api_database_url) as deployment:
        newest = deployment.newest_of_cell(nova_uuid, _LOOKED_FOR)
    if not newest:
        return
    moved = replace(before, database_url=database_url, api_database_url=api_database_url)
    try:
        with closing(open_adapter(moved)) as adapter:
            found = adapter.read_page(PageRequest(In("uuid", tuple(newest)), INSTANCES_BY_UUID, 1, fields=("uuid",)))
    except CellUnreachableError:
        return
    if not found:
        raise ConfigurationError(
            f"--database-url: this is another database than that of cell {name}, and has none of its servers; "
            f"add it as a cell of another name, or remove {name} first: `fleetlight cell remove {name}`"
        )


def _add(fleet: Fleet, name: str, database_url: str, deployment: _Deployment, nova_uuid: str | None) -> Joined:
    before = {cell.name: cell for cell in fleet.cells()}.get(name)
    cell = fleet.add_cell(
        name,
        CellKind.NOVA_DB,
        database_url,
        deployment.transport_url,
        api_database_url=deployment.api_database_url,
        nova_uuid=nova_uuid,
    )
    return Joined(cell, before, problem=_why_unreadable(cell))


def _why_unreadable(cell: Cell) -> str | None:
    try:
        check_schema(cell)
        with closing(open_adapter(cell)) as adapter:
            adapter.find(cell.uuid)
    except CellUnreachableError as error:
        return error.reason
    return None


def _check(option: str, url: str) -> None:
    try:
        parsed = parse_nova_url(url)
    except DatabaseUrlError as error:
        raise ConfigurationError(f"{option}: {error.reason}") from error
    if parsed.get_backend_name() == "sqlite" and not str(parsed.database).startswith("file:/"):
        raise ConfigurationError(
            f"{option}: give an absolute path, with four slashes: sqlite:////var/lib/nova/cell1.db"
        )


def _is_same_place(one: str, other: str) -> bool:
    try:
        places = [parse_nova_url(url) for url in (one, other)]
    except DatabaseUrlError:
        return one == other
    return len({(url.get_backend_name(), url.host, url.port, url.database) for url in places}) == 1

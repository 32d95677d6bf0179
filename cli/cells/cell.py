"""`fleetlight cell`: which cells the fleet has, from the first day of a cell to its last."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from fleetlight.bus.bus import remove_bus, unbind
from fleetlight.bus.topology import dead_name, work_queue_name
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.errors import CellConflictError, CellUnreachableError
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.native.relay import is_relayed
from fleetlight.cells.model import Cell
from fleetlight.cli.cells.certificates import EXAMPLES as CERTIFICATE_EXAMPLES
from fleetlight.cli.cells.certificates import certs
from fleetlight.cli.cells.joined import Joined
from fleetlight.cli.cells.native_cells import add_native_cell
from fleetlight.cli.cells.new_cell import check_transport_url, checked_name, given_url
from fleetlight.cli.cells.nova_cells import add_all_nova_cells, add_nova_cell
from fleetlight.cli.cells.upstream_cells import UpstreamLogin, add_upstream_cell, upstream_address
from fleetlight.cli.data_folder import DEFAULT_DATA_DIR, DataFolder, sqlite_url
from fleetlight.cli.errors import CommandError, ConfigurationError
from fleetlight.cli.fleet import is_in_process, open_fleet, sorted_by_name
from fleetlight.cli.logging import mask_url_passwords
from fleetlight.cli.opened_index import opened_index
from fleetlight.cli.options import ConfigOption, DataDirOption, JsonOption, cell_names, examples
from fleetlight.cli.output import (
    counted,
    is_terminal,
    print_json,
    print_notice,
    print_result,
    print_table,
    progress_bar,
)
from fleetlight.cli.settings import Settings, load_settings
from fleetlight.indexer.errors import LeaseHeldError
from fleetlight.indexer.reconcile.cell_removal import CellRemovalResult, remove_cell
from fleetlight.indexer.writing.leases import CellLeases
from fleetlight.notifications.errors import BusError

app = typer.Typer(
    no_args_is_help=True,
    epilog=examples("fleetlight cell list", "fleetlight cell add --help", "fleetlight cell disable cell4"),
)

app.command(epilog=CERTIFICATE_EXAMPLES)(certs)

CellArgument = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The cell, by name or uuid.", show_default=False, autocompletion=cell_names),
]

ApiDatabaseOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL", envvar="FLEETLIGHT_CELL_API_DATABASE_URL", help="The API database of a Nova deployment."
    ),
]
ApiDatabaseFileOption = Annotated[Path | None, typer.Option(metavar="FILE", help="A file that holds that URL.")]

# Whoever follows a cell looks at the registry that often, and then has something to finish.
_FINISHING_S = 10.0


@app.command(
    epilog=examples(
        "fleetlight cell add cell4 --database-url postgresql://cell4@db/cell4 --transport-url amqp://bus4//",
        "fleetlight cell add cell4 --database-url-file /run/secrets/db4 --transport-url-file /run/secrets/bus4",
        "fleetlight cell add cell4 --transport-url amqp://newbus4//",
        "fleetlight cell add cell1 --kind nova-db --database-url mysql://db/nova --api-database-url mysql://db/nova_api",
        "fleetlight cell add east --kind nova-api --url https://nova.east:8774/v2.1 --os-cloud east",
        "fleetlight cell add farm --kind ganeti --url https://farm:5080 --user reader --password-file farm.password "
        "--ca-file rapi.pem",
    )
)
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call it.", show_default=False)],
    *,
    kind: Annotated[
        CellKind | None, typer.Option(help="What it is: native unless given, or what the cell of that name is.")
    ] = None,
    database_url: Annotated[
        str | None,
        typer.Option(metavar="URL", envvar="FLEETLIGHT_CELL_DATABASE_URL", help="Its database."),
    ] = None,
    database_url_file: Annotated[Path | None, typer.Option(metavar="FILE", help="A file that holds that URL.")] = None,
    transport_url: Annotated[
        str | None, typer.Option(metavar="URL", envvar="FLEETLIGHT_CELL_TRANSPORT_URL", help="Its bus, amqp or amqps.")
    ] = None,
    transport_url_file: Annotated[Path | None, typer.Option(metavar="FILE", help="A file that holds that URL.")] = None,
    api_database_url: ApiDatabaseOption = None,
    api_database_url_file: ApiDatabaseFileOption = None,
    url: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Its address: nova-api, https://nova.example.org:8774/v2.1; ganeti, https://farm:5080."
        ),
    ] = None,
    os_cloud: Annotated[
        str | None, typer.Option(metavar="CLOUD", help="nova-api: whose login it is, by its name in clouds.yaml.")
    ] = None,
    clouds_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="nova-api: clouds.yaml, where OpenStack's clients look for it.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="nova-api: a file that holds a token for X-Auth-Token.")
    ] = None,
    username: Annotated[
        str | None,
        typer.Option("--username", "--user", help="nova-api, ganeti: who we are, with HTTP basic authentication."),
    ] = None,
    password_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="nova-api, ganeti: a file that holds the password.")
    ] = None,
    ca_certs: Annotated[
        Path | None,
        typer.Option(
            "--ca-certs",
            "--ca-file",
            metavar="FILE",
            help="nova-api, ganeti: PEM file of the authority behind its certificate, or of that certificate itself.",
        ),
    ] = None,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Let a cell join the fleet, or change addresses and login of one that is there. Can be repeated.

    Of a cell that is there only what is given changes, and what has changed is said.

    The database of a native cell (SQLite or PostgreSQL) is brought to the newest schema, and instances that are in it
    are found from now on. Cells of Nova (nova-db: MySQL, MariaDB, PostgreSQL or SQLite; nova-api) and of Ganeti (a
    cluster with its remote API) are only ever read.
    """
    checked_name(name)
    databases = (database_url, database_url_file, api_database_url, api_database_url_file)
    has_database = any(each is not None for each in databases)
    login = UpstreamLogin(os_cloud, clouds_file, token_file, username, password_file, ca_certs)
    has_api = url is not None or login.is_given
    with _open_configured_fleet(config, data_dir) as fleet:
        before = next((cell for cell in fleet.cells() if cell.name == name), None)
        bus = _given_bus(transport_url, transport_url_file)
        if before is not None and bus is not None and not has_database and not has_api:
            _change_bus(fleet, before, bus)
            return
        if before is not None and kind not in (None, before.kind):
            raise CellConflictError(name)
        if before is not None and before.kind.is_asked_over_http and kind is None and has_database:
            raise ConfigurationError(f"cell {name} is of kind '{before.kind}', and has no database that is read")
        of_kind = kind or (CellKind.NATIVE if before is None else before.kind)
        if of_kind.is_asked_over_http:
            address = upstream_address(of_kind, url, login, before)
            kept_bus = bus or ("" if before is None else before.transport_url)
            _print_joined(add_upstream_cell(fleet, name, of_kind, address, kept_bus, before=before))
            return
        if has_api:
            raise ConfigurationError("--url and the login are of an API: add --kind nova-api or --kind ganeti")
        database = _url_of(before, "database_url", database_url, database_url_file)
        if of_kind is CellKind.NOVA_DB:
            api_database = _url_of(before, "api_database_url", api_database_url, api_database_url_file)
            kept_bus = bus or ("" if before is None else before.transport_url)
            _print_joined(add_nova_cell(fleet, name, database, api_database, kept_bus))
            return
        if api_database_url is not None or api_database_url_file is not None:
            raise ConfigurationError("--api-database-url is of cells of Nova: add --kind nova-db")
        transport = _url_of(before, "transport_url", transport_url, transport_url_file)
        fleet_url = load_settings(config, data_dir).fleet.database_url.get_secret_value()
        _print_joined(add_native_cell(fleet, fleet_url, name, database, transport))


@app.command(
    "add-nova",
    epilog=examples(
        "fleetlight cell add-nova --api-database-url mysql://db/nova_api?read_default_file=/etc/fleetlight/nova.cnf",
        "fleetlight cell add-nova --api-database-url-file /run/secrets/nova-api --prefix east-",
        "fleetlight cell add-nova --api-database-url-file /run/secrets/nova-api --transport-url amqp://bus/nova",
    ),
)
def add_nova(
    *,
    api_database_url: ApiDatabaseOption = None,
    api_database_url_file: ApiDatabaseFileOption = None,
    main_database_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="What fills in addresses that are templates: Nova's [database]connection."),
    ] = None,
    transport_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="FLEETLIGHT_CELL_TRANSPORT_URL",
            help="The bus of all cells, amqp or amqps; else each has the one that Nova knows it by.",
        ),
    ] = None,
    transport_url_file: Annotated[Path | None, typer.Option(metavar="FILE", help="A file that holds that URL.")] = None,
    prefix: Annotated[str, typer.Option(metavar="TEXT", help="What the names of the cells begin with.")] = "",
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Let all cells of a Nova deployment join the fleet, as its API database knows them. Can be repeated.

    Nothing is ever written to Nova's databases. The accounts in Nova's own addresses are not used: the cells are read
    as whom the address of the API database names, and their buses are followed as `bus.username`. A cell keeps the bus
    that it has, unless another one is given.
    """
    api_database = given_url("--api-database-url", api_database_url, api_database_url_file)
    with _open_configured_fleet(config, data_dir) as fleet:
        for joined in add_all_nova_cells(
            fleet,
            api_database,
            main_database_url=main_database_url,
            transport_url=_given_bus(transport_url, transport_url_file) or "",
            prefix=prefix,
        ):
            _print_joined(joined)


@app.command("list", epilog=examples("fleetlight cell list", "fleetlight cell list --json"))
def list_cells(config: ConfigOption = None, data_dir: DataDirOption = None, json: JsonOption = False) -> None:
    """Show every cell of the fleet; passwords inside URLs are masked."""
    with open_fleet(load_settings(config, data_dir).fleet) as fleet:
        cells = [
            {
                "name": cell.name,
                "uuid": cell.uuid,
                "kind": cell.kind.value,
                "database_url": mask_url_passwords(cell.database_url),
                "transport_url": mask_url_passwords(cell.transport_url),
                "disabled": cell.disabled,
                "announcements": cell.takes_announcements,
            }
            for cell in sorted_by_name(fleet.cells())
        ]
    if json:
        print_json(cells)
        return
    columns = ("name", "uuid", "kind", "state", "takes", "database_url", "transport_url")
    states = [
        cell
        | {
            "state": "disabled" if cell["disabled"] else "enabled",
            "takes": "yes" if cell["announcements"] else "no" if cell["kind"] == CellKind.NATIVE else "-",
        }
        for cell in cells
    ]
    rows = [[str(cell[key]) for key in columns] for cell in states]
    print_table(("NAME", "UUID", "KIND", "STATE", "ANNOUNCEMENTS", "DATABASE", "BUS"), rows)


@app.command(
    "set", epilog=examples("fleetlight cell set cell2 --announcements", "fleetlight cell set cell2 --no-announcements")
)
def set_cell(
    name: CellArgument,
    *,
    announcements: Annotated[
        bool,
        typer.Option(
            "--announcements/--no-announcements",
            help="Whether it takes announcements of instances that its database does not have.",
            show_default=False,
        ),
    ],
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Say whether a native cell takes announcements; indexers know within fleet.cells_refresh_interval_s.

    It takes them from producers only that `fleetlight accounts producer` has given a key for it, and from its own
    outbox. What others announce is a dead letter. What was announced before stays.
    """
    with open_fleet(load_settings(config, data_dir).fleet) as fleet:
        cell = fleet.cell(name)
        if not cell.can.numbers_changes:
            raise ConfigurationError(
                f"cell {cell.name} is not native: what is announced there is a hint, and only its rows become servers"
            )
        fleet.set_takes_announcements(cell.uuid, announcements)
    print_result(f"{cell.name}: takes {'announcements of its producers' if announcements else 'no announcements'}")


@app.command(epilog=examples("fleetlight cell disable cell2"))
def disable(name: CellArgument, config: ConfigOption = None, data_dir: DataDirOption = None) -> None:
    """Stop to follow a cell: indexers and relays leave it within fleet.cells_refresh_interval_s.

    Its instances stay in every list: the cell is asked itself as soon as the index is too old. Notifications of Nova's
    are not collected meanwhile, for which indexers are waited for to leave; all rows are compared when the cell is
    followed again. In a data folder the relay of `fleetlight up` goes on as long as that runs.
    """
    settings = load_settings(config, data_dir)
    with open_fleet(settings.fleet) as fleet:
        cell = _set_disabled(fleet, name, disabled=True)
        if not cell.can.numbers_changes and cell.transport_url:
            _unbind(settings, fleet, cell)


@app.command(epilog=examples("fleetlight cell enable cell2"))
def enable(name: CellArgument, config: ConfigOption = None, data_dir: DataDirOption = None) -> None:
    """Follow a disabled cell again; what changed meanwhile is caught up with."""
    with open_fleet(load_settings(config, data_dir).fleet) as fleet:
        _set_disabled(fleet, name, disabled=False)


@app.command(epilog=examples("fleetlight cell remove cell2", "fleetlight cell remove cell2 --yes"))
def remove(
    name: CellArgument,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Remove a disabled cell from the index and from the fleet, and its queues. Its database stays as it is.

    Not one of a data folder, which `fleetlight up` would make again.
    Waits for indexers and its relay to leave the cell. What is cut off can be repeated.
    """
    settings = load_settings(config, data_dir)
    with open_fleet(settings.fleet) as fleet:
        cell = fleet.cell(name)
        if not cell.disabled:
            raise CommandError(f"cell {cell.name} is in use; disable it first: `fleetlight cell disable {cell.name}`")
        if _is_embedded(settings, data_dir):
            raise ConfigurationError(
                f"cell {cell.name} is one of a data folder: `fleetlight up` would make it again. It can stay disabled"
            )
        if not yes:
            _ask(cell, fleet.count_mappings(cell.uuid))
        removed = _remove(settings, fleet, cell)
    rows, mappings = counted(removed.rows, "row"), counted(removed.mappings, "instance mapping")
    print_result(f"{cell.name}: removed, {rows} from the index and {mappings}; its database is as it was")


@contextmanager
def _open_configured_fleet(config: Path | None, data_dir: Path | None) -> Iterator[Fleet]:
    """The fleet, if it is one that cells can join."""
    settings = load_settings(config, data_dir)
    if _is_embedded(settings, data_dir):
        raise ConfigurationError(
            "this is the fleet of a data folder, whose cells `fleetlight up` makes (`fleetlight up --cells N`) and "
            "follows in its own process; for other cells give a fleet of their own: fleet.database_url"
        )
    with open_fleet(settings.fleet) as fleet:
        yield fleet


def _print_joined(joined: Joined) -> None:
    done = "added" if joined.before is None else "brought up to date"
    state = ", still disabled" if joined.cell.disabled else ""
    count = "" if joined.instances is None else f", {counted(joined.instances, 'instance')}"
    print_result(f"{joined.cell.name}: {done}{state}, uuid {joined.cell.uuid}{count}")
    for what, address in joined.changes():
        print_notice(f"{joined.cell.name}: its {what} is now {mask_url_passwords(address)}")
    if joined.problem is not None:
        print_notice(f"{joined.cell.name}: it cannot be read yet: {joined.problem}")
    for note in joined.notes:
        print_notice(f"{joined.cell.name}: {note}")


def _change_bus(fleet: Fleet, cell: Cell, transport_url: str) -> None:
    """Raises ConfigurationError."""
    if is_in_process(cell):
        raise ConfigurationError(f"the bus of cell {cell.name} is inside of the process of `fleetlight up`")
    changed = fleet.add_cell(
        cell.name,
        cell.kind,
        cell.database_url,
        transport_url,
        api_database_url=cell.api_database_url,
        nova_uuid=cell.nova_uuid,
    )
    print_result(f"{changed.name}: its bus is now {mask_url_passwords(changed.transport_url)}")


def _url_of(before: Cell | None, name: str, url: str | None, file: Path | None) -> str:
    """What is given of an address of a cell; what it had where nothing is. Raises ConfigurationError without both."""
    known: str | None = getattr(before, name, None)
    return known if known and url is None and file is None else given_url(f"--{name.replace('_', '-')}", url, file)


def _given_bus(url: str | None, file: Path | None) -> str | None:
    """The address of a bus, if one is given. Raises ConfigurationError for one that cannot be used."""
    if url is None and file is None:
        return None
    transport = given_url("--transport-url", url, file)
    check_transport_url(transport)
    return transport


def _remove(settings: Settings, fleet: Fleet, cell: Cell) -> CellRemovalResult:
    deadline_s, on_wait = _waiting(settings, cell)
    with (
        opened_index(settings.index) as writer,
        closing(CellLeases(fleet.open_leases("fleetlight cell remove"))) as leases,
        progress_bar() as bar,
    ):
        writer.prepare()
        total = fleet.count_mappings(cell.uuid)
        task = bar.add_task(cell.name, total=total)
        return remove_cell(
            fleet,
            cell.uuid,
            writer,
            leases,
            is_relayed=_is_relayed,
            remove_bus=lambda gone: _remove_bus(settings, gone),
            deadline_s=deadline_s,
            on_wait=on_wait,
            on_batch=lambda rows: bar.update(task, completed=rows, total=max(total, rows)),
            pause=_pause,
        )


def _pause(seconds: float) -> None:
    print_notice(f"waiting {seconds:g} s, until no list counts on the index to have all of the cell")
    time.sleep(seconds)


def _remove_bus(settings: Settings, cell: Cell) -> None:
    if not cell.transport_url:
        return
    try:
        remove_bus(cell.transport_url, cell.uuid, settings.bus)
    except BusError as error:
        # A bus that is gone for good must not keep the cell.
        names = f"{work_queue_name(cell.uuid)} and {dead_name(cell.uuid)}"
        print_notice(
            f"{error}; should it come back, delete its queues {names} there, which no indexer empties any more"
        )


def _is_relayed(cell: Cell) -> bool:
    if not cell.can.numbers_changes:
        return False
    try:
        return is_relayed(cell)
    except CellUnreachableError as error:
        # A relay needs the database as well, and a cell that is gone for good must be removable.
        print_notice(f"{error}; so no relay can be active")
        return False


def _ask(cell: Cell, instances: int) -> None:
    if not is_terminal():
        raise ConfigurationError(
            f"cell {cell.name} is not removed without --yes when there is no terminal to confirm it"
        )
    typer.confirm(f"Remove cell {cell.name} with its {counted(instances, 'instance')} from the fleet?", abort=True)


def _set_disabled(fleet: Fleet, name: str, *, disabled: bool) -> Cell:
    cell = fleet.cell(name)
    fleet.set_disabled(cell.uuid, disabled)
    print_result(f"{cell.name}: {'disabled' if disabled else 'enabled'}")
    return cell


def _unbind(settings: Settings, fleet: Fleet, cell: Cell) -> None:
    """Have the cell's queue get nothing more, as soon as no indexer is left that would bind it again."""
    ending = f"its queue {work_queue_name(cell.uuid)} goes on filling"
    deadline_s, on_wait = _waiting(settings, cell)
    with closing(CellLeases(fleet.open_leases("fleetlight cell disable"))) as leases:
        try:
            with leases.unfollowed(cell, deadline_s=deadline_s, on_wait=on_wait):
                # Whoever has enabled it meanwhile needs the queue.
                if fleet.cell(cell.uuid).disabled:
                    unbind(cell.transport_url, cell.uuid, settings.bus)
        except BusError as error:
            print_notice(f"{error}; until it is removed there, {ending}")
        except LeaseHeldError as error:
            print_notice(f"{error}; if that ends without this being repeated, {ending}")


def _waiting(settings: Settings, cell: Cell) -> tuple[float, Callable[[LeaseHeldError], None]]:
    """How long to wait for those who follow a cell that was disabled, and what to say then."""
    deadline_s = settings.fleet.cells_refresh_interval_s + _FINISHING_S

    def on_wait(error: LeaseHeldError) -> None:
        print_notice(f"waiting up to {deadline_s:g} s for {error.holder} to leave cell {cell.name}")

    return deadline_s, on_wait


def _is_embedded(settings: Settings, data_dir: Path | None) -> bool:
    folder = DataFolder(data_dir or DEFAULT_DATA_DIR)
    return settings.fleet.database_url.get_secret_value() == sqlite_url(folder.fleet_database)

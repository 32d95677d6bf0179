"""`fleetlight cell add KIND` and `fleetlight cell add-nova`: add cells to the fleet, or change their addresses."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.model import Cell
from fleetlight.cli.cells.joined import Joined
from fleetlight.cli.cells.native_cells import add_native_cell
from fleetlight.cli.cells.new_cell import check_transport_url, checked_name, given_url
from fleetlight.cli.cells.nova_cells import (
    CheckedNovaCell,
    add_all_nova_cells,
    add_nova_cell,
    check_all_nova_cells,
)
from fleetlight.cli.cells.upstream_cells import UpstreamLogin, add_upstream_cell, upstream_address
from fleetlight.cli.data_folder import is_in_data_folder
from fleetlight.cli.errors import ConfigurationError
from fleetlight.cli.fleet import LoadedSettings, is_in_process, open_fleet
from fleetlight.cli.given import FromSettings
from fleetlight.cli.groups import PlainGroup
from fleetlight.cli.logging import mask_url_passwords
from fleetlight.cli.options import ConfigOption, DataDirOption, Output, OutputOption, examples
from fleetlight.cli.output import counted, print_notice, print_result, print_rows
from fleetlight.cli.settings import Settings, load_settings
from fleetlight.indexer.followed_by import FollowedBy


class _KindsGroup(PlainGroup):
    """Refuses the former `cell add NAME --kind KIND`, and says what to type instead."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        first = args[0] if args else "--help"
        if not ctx.resilient_parsing and first not in {*self.commands, *ctx.help_option_names}:
            name = "NAME" if first.startswith("-") else first
            kinds = ", ".join(CellKind)
            raise ConfigurationError(
                f"`fleetlight cell add` takes the kind of the cell before its name ({kinds}): "
                f"`fleetlight cell add {_kind_in(args)} {name} ...`"
            )
        return super().parse_args(ctx, args)


add = typer.Typer(
    name="add",
    cls=_KindsGroup,
    help="Add a cell to the fleet, or change the address and login of one: a command for each kind.",
    no_args_is_help=True,
    epilog=examples(
        "fleetlight cell add native cell4 --database-url postgresql://cell4@db/cell4 --transport-url amqp://bus4//",
        "fleetlight cell add nova-db --help",
    ),
)


@contextmanager
def _open_fleet_to_join(settings: Settings, data_dir: Path | None) -> Iterator[Fleet]:
    """Open the fleet if cells can be added to it. Raises ConfigurationError for the fleet of a data folder."""
    if is_in_data_folder(settings.fleet, data_dir):
        raise ConfigurationError(
            "this is the fleet of a data folder, whose cells `fleetlight up` makes (`fleetlight up --cells N`) and "
            "follows in its own process; for other cells give a fleet of their own: fleet.database_url"
        )
    with open_fleet(settings.fleet) as fleet:
        yield fleet


FleetToJoin = Annotated[Fleet, FromSettings(_open_fleet_to_join)]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of the cell.", show_default=False)]
DatabaseOption = Annotated[
    str | None,
    typer.Option(metavar="URL", envvar="FLEETLIGHT_CELL_DATABASE_URL", help="The database of the cell."),
]
TransportOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL", envvar="FLEETLIGHT_CELL_TRANSPORT_URL", help="The message bus of the cell, amqp or amqps."
    ),
]
ApiDatabaseOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL", envvar="FLEETLIGHT_CELL_API_DATABASE_URL", help="The API database of the Nova deployment."
    ),
]
UrlFileOption = Annotated[Path | None, typer.Option(metavar="FILE", help="A file that holds that URL.")]
PasswordFileOption = Annotated[Path | None, typer.Option(metavar="FILE", help="A file that holds the password.")]
AuthorityOption = Annotated[
    Path | None,
    typer.Option(
        "--ca-certs",
        "--ca-file",
        metavar="FILE",
        help="PEM file with the certificate of the API's authority, or with the certificate of the API itself.",
    ),
]


@add.command(
    epilog=examples(
        "fleetlight cell add native cell4 --database-url postgresql://cell4@db/cell4 --transport-url amqp://bus4//",
        "fleetlight cell add native cell4 --database-url-file /run/secrets/db4 --transport-url-file /run/secrets/bus4",
        "fleetlight cell add native cell4 --transport-url amqp://newbus4//",
    )
)
def native(
    name: NameArgument,
    *,
    database_url: DatabaseOption = None,
    database_url_file: UrlFileOption = None,
    transport_url: TransportOption = None,
    transport_url_file: UrlFileOption = None,
    settings: LoadedSettings,
    fleet: FleetToJoin,
) -> None:
    """Add a cell of Fleetlight's own, on SQLite or PostgreSQL. Can be repeated.

    If the cell exists, only the given options change. The command brings the database to the newest schema, and
    registers the instances that are in it.
    """
    before = _cell_before(fleet, name, CellKind.NATIVE)
    bus = _given_bus(transport_url, transport_url_file)
    if before is not None and bus is not None and database_url is None and database_url_file is None:
        _change_bus(fleet, before, bus)
        return
    database = _url_of(before, "database_url", database_url, database_url_file)
    transport = _url_of(before, "transport_url", transport_url, transport_url_file)
    fleet_url = settings.fleet.database_url.get_secret_value()
    _print_joined(add_native_cell(fleet, fleet_url, name, database, transport))


@add.command(
    epilog=examples(
        "fleetlight cell add nova-db cell1 --database-url mysql://db/nova --api-database-url mysql://db/nova_api",
        "fleetlight cell add nova-db cell1 --transport-url amqp://newbus/nova",
    )
)
def nova_db(
    name: NameArgument,
    *,
    database_url: DatabaseOption = None,
    database_url_file: UrlFileOption = None,
    api_database_url: ApiDatabaseOption = None,
    api_database_url_file: UrlFileOption = None,
    transport_url: TransportOption = None,
    transport_url_file: UrlFileOption = None,
    fleet: FleetToJoin,
) -> None:
    """Add one cell of Nova by its database, which is only read: MySQL, MariaDB, PostgreSQL or SQLite. Can be repeated.

    If the cell exists, only the given options change. `fleetlight cell add-nova` adds all cells of a deployment.
    """
    databases = (database_url, database_url_file, api_database_url, api_database_url_file)
    before = _cell_before(fleet, name, CellKind.NOVA_DB)
    bus = _given_bus(transport_url, transport_url_file)
    if before is not None and bus is not None and all(each is None for each in databases):
        _change_bus(fleet, before, bus)
        return
    database = _url_of(before, "database_url", database_url, database_url_file)
    api_database = _url_of(before, "api_database_url", api_database_url, api_database_url_file)
    _print_joined(add_nova_cell(fleet, name, database, api_database, _kept_bus(bus, before)))


@add.command(
    epilog=examples(
        "fleetlight cell add nova-api east --url https://nova.east:8774/v2.1 --os-cloud east",
        "fleetlight cell add nova-api east --token-file /run/secrets/east-token",
    )
)
def nova_api(
    name: NameArgument,
    *,
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="The address, like https://nova.example.org:8774/v2.1.")
    ] = None,
    os_cloud: Annotated[
        str | None, typer.Option(metavar="CLOUD", help="The name of the login to use in clouds.yaml.")
    ] = None,
    clouds_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="clouds.yaml; by default the one that OpenStack's clients would find."),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file that holds a token for X-Auth-Token.")
    ] = None,
    username: Annotated[
        str | None, typer.Option("--username", "--user", help="The user of HTTP basic authentication.")
    ] = None,
    password_file: PasswordFileOption = None,
    ca_certs: AuthorityOption = None,
    transport_url: TransportOption = None,
    transport_url_file: UrlFileOption = None,
    fleet: FleetToJoin,
) -> None:
    """Add a Nova deployment, or another Fleetlight, by its compute API, which is only read. Can be repeated.

    If the cell exists, only the given options change.
    """
    login = UpstreamLogin(os_cloud, clouds_file, token_file, username, password_file, ca_certs)
    before = _cell_before(fleet, name, CellKind.NOVA_API)
    bus = _given_bus(transport_url, transport_url_file)
    if before is not None and bus is not None and url is None and not login.is_given:
        _change_bus(fleet, before, bus)
        return
    address = upstream_address(CellKind.NOVA_API, url, login, before)
    kept_bus = _kept_bus(bus, before)
    _print_joined(add_upstream_cell(fleet, name, CellKind.NOVA_API, address, kept_bus, before=before))


@add.command(
    epilog=examples(
        "fleetlight cell add ganeti farm --url https://farm:5080 --user reader --password-file farm.password "
        "--ca-file rapi.pem",
        "fleetlight cell add ganeti farm --password-file new.password",
    )
)
def ganeti(
    name: NameArgument,
    *,
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="The address of its remote API, like https://farm:5080.")
    ] = None,
    username: Annotated[
        str | None, typer.Option("--username", "--user", help="The user of HTTP basic authentication.")
    ] = None,
    password_file: PasswordFileOption = None,
    ca_certs: AuthorityOption = None,
    fleet: FleetToJoin,
) -> None:
    """Add a Ganeti cluster by its remote API, which is only read. Can be repeated.

    If the cell exists, only the given options change.
    """
    login = UpstreamLogin(username=username, password_file=password_file, ca_certs=ca_certs)
    before = _cell_before(fleet, name, CellKind.GANETI)
    address = upstream_address(CellKind.GANETI, url, login, before)
    kept_bus = _kept_bus(None, before)
    _print_joined(add_upstream_cell(fleet, name, CellKind.GANETI, address, kept_bus, before=before))


ADD_NOVA_EXAMPLES = examples(
    "fleetlight cell add-nova --api-database-url mysql://db/nova_api?read_default_file=/etc/fleetlight/nova.cnf",
    "fleetlight cell add-nova --check --api-database-url-file /run/secrets/nova-api",
    "fleetlight cell add-nova --api-database-url-file /run/secrets/nova-api --prefix east-",
    "fleetlight cell add-nova --api-database-url-file /run/secrets/nova-api --transport-url amqp://bus/nova",
    "fleetlight cell add-nova --api-database-url mysql://fleetlight@10.0.0.5:3307/nova_api --one-server",
)


def add_nova(
    *,
    api_database_url: ApiDatabaseOption = None,
    api_database_url_file: UrlFileOption = None,
    main_database_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Nova's [database]connection, to fill in cell addresses that are templates."),
    ] = None,
    transport_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="FLEETLIGHT_CELL_TRANSPORT_URL",
            help="The bus of all cells, amqp or amqps; by default each cell has the bus that Nova knows for it.",
        ),
    ] = None,
    transport_url_file: UrlFileOption = None,
    prefix: Annotated[str, typer.Option(metavar="TEXT", help="A prefix for the names of the cells.")] = "",
    one_server: Annotated[
        bool, typer.Option("--one-server", help="Read every cell at the server of the API database.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Only check whether the rows and the log of each cell can be read.")
    ] = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Add all cells of a Nova deployment that its API database knows. Can be repeated.

    Nothing is ever written to Nova's databases. The accounts in Nova's own addresses are not used: Fleetlight reads the
    cells with the account in the address of the API database, and their buses with `bus.username`. A cell keeps its bus
    unless another one is given.

    With --check nothing is added, and no fleet is needed: the command tries each cell as an indexer would. FOLLOWED BY
    is `log` if the log of the database server shows each commit at once, and `comparisons` if an indexer would have to
    compare all rows at intervals; WHY says how to change that. Exit code 0 if every cell can be followed by a log, 1 if
    not.
    """
    api_database = given_url("--api-database-url", api_database_url, api_database_url_file)
    if check:
        checked = check_all_nova_cells(
            api_database, main_database_url=main_database_url, prefix=prefix, one_server=one_server
        )
        _print_checked(checked, output)
        raise typer.Exit(0 if all(each.followed_by is FollowedBy.LOG for each in checked) else 1)
    with _open_fleet_to_join(load_settings(config, data_dir), data_dir) as fleet:
        for joined in add_all_nova_cells(
            fleet,
            api_database,
            main_database_url=main_database_url,
            transport_url=_given_bus(transport_url, transport_url_file) or "",
            prefix=prefix,
            one_server=one_server,
        ):
            _print_joined(joined)


def _print_checked(checked: Sequence[CheckedNovaCell], output: Output) -> None:
    document = [
        {
            "name": each.name,
            "database_url": mask_url_passwords(each.database_url),
            "readable": each.unreadable is None,
            "followed_by": each.followed_by,
            "reason": each.unreadable or each.log_problem,
        }
        for each in checked
    ]
    rows = [
        [
            each.name,
            "yes" if each.unreadable is None else "no",
            each.followed_by or "-",
            each.unreadable or each.log_problem or "-",
        ]
        for each in checked
    ]
    print_rows(output, document, ("CELL", "READABLE", "FOLLOWED BY", "WHY"), rows)


def _kind_in(args: Sequence[str]) -> str:
    """The kind after `--kind`; without that option native, which was its default."""
    words = [word for each in args for word in each.split("=", 1)]
    named = [value for option, value in pairwise(words) if option == "--kind"]
    return next((kind for kind in CellKind if kind in named), CellKind.NATIVE)


def _cell_before(fleet: Fleet, name: str, kind: CellKind) -> Cell | None:
    """The cell of that name, or None. Raises ConfigurationError if it is of another kind."""
    checked_name(name)
    before = next((cell for cell in fleet.cells() if cell.name == name), None)
    if before is not None and before.kind is not kind:
        raise ConfigurationError(
            f"cell {name} is of kind '{before.kind}': change it by `fleetlight cell add {before.kind} {name}`, "
            "or choose another name"
        )
    return before


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
    """Give a cell another bus and keep the rest. Raises ConfigurationError for a cell whose bus is in one process."""
    if is_in_process(cell):
        raise ConfigurationError(f"the bus of cell {cell.name} is inside the process of `fleetlight up`")
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
    """The given URL for the field `name`, else the one that the cell had. Raises ConfigurationError without either."""
    known: str | None = getattr(before, name, None)
    return known if known and url is None and file is None else given_url(f"--{name.replace('_', '-')}", url, file)


def _given_bus(url: str | None, file: Path | None) -> str | None:
    """The given address of a bus, or None. Raises ConfigurationError for an address that cannot be used."""
    if url is None and file is None:
        return None
    transport = given_url("--transport-url", url, file)
    check_transport_url(transport)
    return transport


def _kept_bus(given: str | None, before: Cell | None) -> str:
    """The given bus, else the one that the cell had; empty without either."""
    return given or ("" if before is None else before.transport_url)

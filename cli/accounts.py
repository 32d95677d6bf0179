"""`fleetlight accounts`: a separate account for each process on each server, with the rights it needs and no others.

It also makes the keys with which producers sign announcements. Secrets go to files that only their owner can read,
never to the terminal. A file that exists is kept.
"""

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from sqlalchemy import Engine

from fleetlight.bus import rabbitmq_accounts as bus_accounts
from fleetlight.bus.rabbitmq_accounts import Rights
from fleetlight.bus.signatures import ProducerKey, is_producer_name
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.errors import CellUnreachableError, FleetUnreachableError
from fleetlight.cells.fleet.cell_keys import new_key
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.model import Cell
from fleetlight.cli.errors import CommandError, ConfigurationError
from fleetlight.cli.fleet import OpenFleet, chosen_cells, open_fleet, sorted_by_name
from fleetlight.cli.options import CellOption, ConfigOption, Output, OutputOption, examples
from fleetlight.cli.output import iso_time, print_notice, print_result, print_rows
from fleetlight.cli.postgresql_rights import ROLE_PREFIX
from fleetlight.cli.secret_files import kept_or_new, new_password
from fleetlight.cli.settings import load_settings
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.notifications.errors import BusError, ProducerKeyError
from fleetlight.resources.units import MICROSECONDS_PER_HOUR

app = typer.Typer(
    no_args_is_help=True,
    epilog=examples("fleetlight accounts postgresql --help", "fleetlight accounts rabbitmq --help"),
)

AdministratorOption = Annotated[
    str,
    typer.Option("--administrator", metavar="NAME", help="An account that may create others.", show_default=False),
]
PasswordFileOption = Annotated[
    Path, typer.Option("--password-file", metavar="FILE", help="The administrator's password.", show_default=False)
]
FolderOption = Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder for the files with the secrets.")]
AcceptOldOption = Annotated[
    float, typer.Option(min=0, metavar="HOURS", help="How long indexers still accept messages with the old keys.")
]
ProducerArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of the producer.", show_default=False)]
_DEFAULT_FOLDER = Path("fleetlight-accounts")


@app.command(
    epilog=examples("fleetlight accounts elasticsearch --administrator elastic --password-file /run/secrets/elastic")
)
def elasticsearch(
    administrator: AdministratorOption,
    password_file: PasswordFileOption,
    out: FolderOption = _DEFAULT_FOLDER,
    config: ConfigOption = None,
) -> None:
    """Create a key for the API, which can only read our indexes, and one for the indexer, which can only write them."""
    from fleetlight.indexer.backends.elasticsearch import accounts as index_accounts  # noqa: PLC0415 -- has the client

    settings = load_settings(config, None).index
    if settings.backend == "opensearch":
        raise ConfigurationError(
            "index.backend is opensearch: make the accounts with its security plugin, in the roles of "
            "docs/operations/opensearch.md#accounts"
        )
    if settings.backend != "elasticsearch":
        raise ConfigurationError(f"index.backend is {settings.backend}, which has no accounts")
    as_administrator = IndexSettings.model_validate(
        settings.model_dump(exclude={"api_key"}) | {"username": administrator, "password": _read(password_file)}
    )
    for account in index_accounts.ACCOUNTS:
        path = out / f"{account}.index-key"
        key, is_new = kept_or_new(path, partial(index_accounts.create_key, as_administrator, account))
        if not is_new and not index_accounts.is_valid_key(settings, key):
            raise CommandError(
                f"Elasticsearch does not accept the key in {path} (any more); remove the file to get a new key"
            )
        _report(account, "index.api_key_file", path, is_new=is_new)


@app.command(
    epilog=examples(
        "fleetlight accounts rabbitmq --management-url https://bus:15671 --administrator admin "
        "--password-file /run/secrets/rabbitmq"
    )
)
def rabbitmq(
    *,
    management_url: Annotated[
        str, typer.Option(metavar="URL", help="The management API of the broker.", show_default=False)
    ],
    administrator: AdministratorOption,
    password_file: PasswordFileOption,
    cells: Annotated[
        list[str] | None,
        typer.Option("--cell", metavar="NAME", help="Create a user for the relay of this cell alone; repeatable."),
    ] = None,
    producer_name: Annotated[
        str | None,
        typer.Option("--producer", metavar="NAME", help="Create a user for this producer, for the cells of --cell."),
    ] = None,
    vhost: Annotated[str, typer.Option(metavar="NAME", help="The virtual host of the cells' buses.")] = "/",
    out: FolderOption = _DEFAULT_FOLDER,
    config: ConfigOption = None,
) -> None:
    """Create one user for the relays and one for the indexers of a broker. Can be repeated, once for each broker.

    With --cell, create a user that reaches only the exchanges and queues of this cell, and none for all cells. With
    --producer as well, create a user that can only publish to these cells.
    """
    if producer_name is not None:
        _check_producer_name(producer_name)
        if not cells:
            raise ConfigurationError("--producer: give --cell, for each cell that it announces in")
    everything = load_settings(config, None)
    settings = everything.bus
    accounts = dict.fromkeys(bus_accounts.ACCOUNTS, bus_accounts.ALL_CELLS)
    if cells:
        with open_fleet(everything.fleet) as fleet:
            if producer_name is None:
                accounts = {f"relay-{each.name}": Rights.of_relay(each.uuid) for each in map(fleet.cell, cells)}
            else:
                rights = Rights.of_producer([_announcing_cell(fleet, each).uuid for each in cells])
                accounts = {f"producer-{producer_name}": rights}
    try:
        bus_accounts.check_management_url(management_url)
    except BusError as error:
        raise ConfigurationError(f"--management-url: {error}") from error
    management = bus_accounts.Management(management_url, administrator, _read(password_file))
    bus_accounts.check_vhost(management, vhost, settings)
    for account, rights in accounts.items():
        path = out / f"{account}.bus-password"
        password, is_new = kept_or_new(path, new_password)
        bus_accounts.create_user(management, vhost, ROLE_PREFIX + account, password, settings, rights=rights)
        _report(account, f"bus.username = {ROLE_PREFIX}{account}, bus.password_file", path, is_new=is_new)


@app.command(epilog=examples("fleetlight accounts postgresql --config /etc/fleetlight-owner.toml"))
def postgresql(out: FolderOption = _DEFAULT_FOLDER, config: ConfigOption = None) -> None:
    """Create a role for each kind of process, with rights in the fleet database and the databases of native cells.

    Run it as the account that runs `fleetlight database upgrade`. Can be repeated. Later upgrades, and cells that are
    added later, grant these roles their rights on new tables.
    """
    from fleetlight.cells import postgresql_accounts  # noqa: PLC0415 -- has the driver

    settings = load_settings(config, None)
    with open_fleet(settings.fleet) as fleet, ExitStack() as engines:
        native = [cell for cell in sorted_by_name(fleet.cells()) if cell.can.takes_changes]
        of_fleet = _open(engines, settings.fleet.database_url.get_secret_value())
        of_cells = {cell.name: _open(engines, cell.database_url) for cell in native}
        for account, (in_fleet, in_cells) in postgresql_accounts.ACCOUNTS.items():
            role, path = ROLE_PREFIX + account, out / f"{account}.pgpass"
            # A line of libpq's password file: *:*:* matches every host, port and database.
            start = f"*:*:*:{role}:"
            line, is_new = kept_or_new(path, partial(_with_new_password, start))
            if not line.startswith(start):
                raise CommandError(f"{path} is not a file that this command made; remove it to get a new one")
            password = line.removeprefix(start)
            postgresql_accounts.grant(of_fleet, role, password, in_fleet, FleetUnreachableError)
            for name, engine in of_cells.items():
                postgresql_accounts.grant(engine, role, password, in_cells, partial(CellUnreachableError, name))
            _report(account, f"PGUSER={role}, PGPASSFILE", path, is_new=is_new)


@app.command(
    epilog=examples("fleetlight accounts cell-keys", "fleetlight accounts cell-keys --cell cell1 --accept-old-for-h 0")
)
def cell_keys(*, cell: CellOption = None, accept_old_for_h: AcceptOldOption = 24.0, fleet: OpenFleet) -> None:
    """Give native cells new keys, with which their relays sign messages. No process has to be restarted.

    Indexers trust a message of a cell's relay only if it has such a signature. Relays sign with the new key within
    `fleet.cells_refresh_interval_s`. If a message is signed with a key that is no longer accepted, its change is not
    lost: the indexer reads it from the cell. Run the command as the account that runs `fleetlight database upgrade`.
    """
    native = [each for each in sorted_by_name(chosen_cells(fleet, cell)) if each.can.takes_changes]
    if not native:
        raise CommandError("there is no native cell" if cell is None else f"'{cell}' is no native cell")
    fleet.clock.look()
    for each in native:
        now = fleet.clock()
        accepted_until = now + round(accept_old_for_h * MICROSECONDS_PER_HOUR)
        key = fleet.cell_keys.rotate(each.uuid, now=now, accepted_until=accepted_until)
        print_result(f"{each.name}: key {key.id}; keys before it are accepted for {accept_old_for_h:g} hours")


@app.command(
    epilog=examples(
        "fleetlight accounts producer rack-agent --cell cell1",
        "fleetlight accounts producer rack-agent --cell cell2 --out /etc/fleetlight",
        "fleetlight accounts producer rack-agent --accept-old-for-h 0",
    )
)
def producer(
    name: ProducerArgument,
    *,
    cells: Annotated[
        list[str] | None,
        typer.Option("--cell", metavar="NAME", help="A native cell in which the producer may announce; repeatable."),
    ] = None,
    accept_old_for_h: AcceptOldOption = 24.0,
    out: FolderOption = _DEFAULT_FOLDER,
    fleet: OpenFleet,
) -> None:
    """Let a producer announce instances in cells that take announcements, and create the key with which it signs.

    The key is written to its file and shown nowhere else. If the file exists, its key is kept; without the file the
    producer gets a new key for all its cells. Indexers accept the key within `fleet.cells_refresh_interval_s`.
    """
    _check_producer_name(name)
    given = [_announcing_cell(fleet, each) for each in cells or ()]
    if not given and all(each.producer != name for each in fleet.producer_keys.all()):
        raise ConfigurationError(f"producer {name} may announce in no cell yet: give --cell")
    path = out / f"{name}.producer-key"
    text, is_new = kept_or_new(path, lambda: ProducerKey(name, new_key()).reveal())
    key = _key_in(path, text, name)
    if not is_new and not fleet.producer_keys.is_current(key):
        raise CommandError(
            f"the key in {path} is not that of producer {name} (any more); remove the file to get a new key"
        )
    fleet.clock.look()
    now = fleet.clock()
    accepted_until = now + round(accept_old_for_h * MICROSECONDS_PER_HOUR)
    allowed = fleet.producer_keys.accept(key, [cell.uuid for cell in given], now=now, accepted_until=accepted_until)
    names = _names(fleet)
    _report(f"{name} in {', '.join(sorted(names[uuid] for uuid in allowed))}", "its key", path, is_new=is_new)
    for cell in given:
        if not cell.takes_announcements:
            remedy = f"`fleetlight cell set {cell.name} --announcements`"
            print_notice(f"{cell.name} takes no announcements until it is let to: {remedy}")


@app.command(epilog=examples("fleetlight accounts producers", "fleetlight accounts producers --output json"))
def producers(fleet: OpenFleet, output: OutputOption = Output.TABLE) -> None:
    """List the producers, their cells and the ids of their keys, without the secrets."""
    names = _names(fleet)
    keys = [
        (each.producer, names[each.cell_uuid], each.key.id, iso_time(each.expires_at))
        for each in fleet.producer_keys.all()
    ]
    columns = ("producer", "cell", "key", "accepted_until")
    document = [dict(zip(columns, row, strict=True)) for row in keys]
    rows = [(*row[:3], row[3] or "-") for row in keys]
    print_rows(output, document, ("PRODUCER", "CELL", "KEY", "ACCEPTED UNTIL"), rows)


@app.command(
    epilog=examples(
        "fleetlight accounts revoke-producer rack-agent", "fleetlight accounts revoke-producer rack-agent --cell cell1"
    )
)
def revoke_producer(name: ProducerArgument, *, cell: CellOption = None, fleet: OpenFleet) -> None:
    """Stop taking announcements from a producer, in all cells or in one.

    Indexers stop within `fleet.cells_refresh_interval_s`. Instances that it announced before stay: `fleetlight index
    find --field announced_by=NAME` lists them. Remove the producer's key file yourself.
    """
    cells = None if cell is None else [fleet.cell(cell).uuid]
    revoked = fleet.producer_keys.revoke(name, cells)
    if not revoked:
        raise CommandError(f"producer {name} has no key there")
    names = _names(fleet)
    print_result(f"{name}: revoked in {', '.join(sorted(names[uuid] for uuid in revoked))}")


def _check_producer_name(name: str) -> None:
    """Raises ConfigurationError if a producer cannot have this name."""
    if not is_producer_name(name):
        raise ConfigurationError(
            f"'{name}' cannot be the name of a producer: use up to 63 letters, digits, dots, hyphens and underscores, "
            "beginning with a letter or a digit"
        )


def _announcing_cell(fleet: Fleet, name: str) -> Cell:
    """The native cell of this name or uuid. Raises ConfigurationError for a cell of another kind, UnknownCellError."""
    cell = fleet.cell(name)
    if not cell.can.numbers_changes:
        raise ConfigurationError(f"cell {cell.name} has no producers: what is announced there is read from its rows")
    return cell


def _key_in(path: Path, text: str, name: str) -> ProducerKey:
    """Parse the key file of the producer `name`. Raises CommandError if it has no key, or that of another producer."""
    try:
        key = ProducerKey.read(text)
    except ProducerKeyError as error:
        raise CommandError(f"{path}: {error}; remove it to get a new one") from error
    if key.producer != name:
        raise CommandError(f"{path} has the key of producer {key.producer}")
    return key


def _names(fleet: Fleet) -> dict[str, str]:
    return {each.uuid: each.name for each in fleet.cells()}


def _with_new_password(start: str) -> str:
    return start + new_password()


def _open(engines: ExitStack, url: str) -> Engine:
    engine = create_database_engine(url, pool_size=1)
    engines.callback(engine.dispose)
    if engine.dialect.name != "postgresql":
        raise ConfigurationError("the fleet has databases that are SQLite files, and SQLite has no accounts")
    return engine


def _report(account: str, use: str, path: Path, *, is_new: bool) -> None:
    print_result(f"{account}: {use} = {path.absolute()} ({'new' if is_new else 'kept'})")


def _read(file: Path) -> str:
    try:
        password = file.read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise ConfigurationError(f"--password-file: cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"--password-file: {file} is not UTF-8 text") from error
    if not password:
        raise ConfigurationError(f"--password-file: {file} is empty")
    return password

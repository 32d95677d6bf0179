"""`fleetlight cell`: list, change, disable, enable and remove the cells of the fleet."""

import time
from collections.abc import Callable
from contextlib import closing, nullcontext, suppress
from importlib import import_module
from typing import Annotated, Any

import typer

from fleetlight.bus.bus import remove_bus, remove_work_queue
from fleetlight.bus.topology import dead_name, work_queue_name
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.errors import CellInUseError, CellUnreachableError
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.native.relay import is_relayed
from fleetlight.cells.model import Cell
from fleetlight.cli.cells.adding import ADD_NOVA_EXAMPLES, add, add_nova
from fleetlight.cli.data_folder import is_in_data_folder
from fleetlight.cli.errors import CommandError, ConfigurationError
from fleetlight.cli.fleet import LoadedSettings, OpenFleet, is_in_process, sorted_by_name
from fleetlight.cli.given import FromSettings
from fleetlight.cli.logging import mask_url_passwords
from fleetlight.cli.opened_index import IndexedCells, opened_index, read_index
from fleetlight.cli.options import Output, OutputOption, cell_names, examples
from fleetlight.cli.output import counted, is_terminal, print_notice, print_result, print_rows, progress_bar
from fleetlight.cli.settings import Settings
from fleetlight.indexer.errors import IndexerError, LeaseHeldError
from fleetlight.indexer.reconcile.cell_removal import CellRemovalResult, remove_cell, wait_for_relay
from fleetlight.indexer.writing.leases import CellLeases
from fleetlight.notifications.errors import BusError
from fleetlight.resources.wings import wings

app = typer.Typer(
    no_args_is_help=True,
    epilog=examples("fleetlight cell list", "fleetlight cell add native --help", "fleetlight cell disable cell4"),
)

app.add_typer(add)
app.command("add-nova", epilog=ADD_NOVA_EXAMPLES)(add_nova)
for wing in wings():
    import_module(wing.cells).add_to(app)

CellArgument = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The cell, by name or uuid.", show_default=False, autocompletion=cell_names),
]
IsInDataFolder = Annotated[
    bool, FromSettings(lambda settings, data_dir: nullcontext(is_in_data_folder(settings.fleet, data_dir)))
]

# Indexers and relays read the registry every fleet.cells_refresh_interval_s, then finish the work at hand.
_FINISHING_S = 10.0


@app.command("list", epilog=examples("fleetlight cell list", "fleetlight cell list --output json"))
def list_cells(settings: LoadedSettings, fleet: OpenFleet, output: OutputOption = Output.TABLE) -> None:
    """List every cell of the fleet; passwords inside URLs are masked.

    FOLLOWED BY is as in `fleetlight index status`: `changes`, `log` or `comparisons`. It is `-` for a disabled cell,
    and, while the index does not answer, for a cell that does not number its changes.
    """
    known = sorted_by_name(fleet.cells())
    indexed: IndexedCells | None = None
    if any(not cell.can.numbers_changes for cell in known):
        with suppress(IndexerError):
            indexed = read_index(settings.index)
    cells: list[dict[str, Any]] = [
        {
            "name": cell.name,
            "uuid": cell.uuid,
            "kind": cell.kind.value,
            "database_url": mask_url_passwords(cell.database_url),
            "transport_url": mask_url_passwords(cell.transport_url),
            "disabled": cell.disabled,
            "announcements": cell.takes_announcements,
            "followed_by": (indexed or IndexedCells()).followed_by(cell)
            if not cell.disabled and (indexed or cell.can.numbers_changes)
            else None,
        }
        for cell in known
    ]
    rows = [
        [
            *(cell[key] for key in ("name", "uuid", "kind")),
            "disabled" if cell["disabled"] else "enabled",
            "yes" if cell["announcements"] else "no" if cell["kind"] == CellKind.NATIVE else "-",
            cell["followed_by"] or "-",
            *(cell[key] for key in ("database_url", "transport_url")),
        ]
        for cell in cells
    ]
    titles = ("NAME", "UUID", "KIND", "STATE", "ANNOUNCEMENTS", "FOLLOWED BY", "DATABASE", "BUS")
    print_rows(output, cells, titles, rows)


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
            help="Whether the cell takes announcements of instances that its database does not have.",
            show_default=False,
        ),
    ],
    fleet: OpenFleet,
) -> None:
    """Set whether a native cell takes announcements; indexers apply it within fleet.cells_refresh_interval_s.

    The cell takes them only from its own outbox, and from producers with a key for it (`fleetlight accounts producer`).
    Announcements from others become dead letters. Instances that were announced before stay.
    """
    cell = fleet.cell(name)
    if not cell.can.numbers_changes:
        raise ConfigurationError(
            f"cell {cell.name} is not native: an announcement there is only a hint, and servers come from its rows"
        )
    fleet.set_takes_announcements(cell.uuid, announcements)
    print_result(f"{cell.name}: takes {'announcements of its producers' if announcements else 'no announcements'}")


@app.command(epilog=examples("fleetlight cell disable cell2"))
def disable(name: CellArgument, settings: LoadedSettings, fleet: OpenFleet) -> None:
    """Stop following a cell: indexers and relays leave it within fleet.cells_refresh_interval_s.

    Its instances stay in every list: lists ask the cell itself as soon as the index is too old. The command waits until
    indexers and relays have left, and removes the cell's queue, which nothing would empty. After `fleetlight cell
    enable` the indexer reads from the cell what the queue had. In a data folder the relay runs as long as `fleetlight
    up`.
    """
    cell = _set_disabled(fleet, name, disabled=True)
    if cell.transport_url and not is_in_process(cell):
        _remove_queue(settings, fleet, cell)


@app.command(epilog=examples("fleetlight cell enable cell2"))
def enable(name: CellArgument, fleet: OpenFleet) -> None:
    """Follow a disabled cell again; its indexer catches up with the changes that it missed."""
    _set_disabled(fleet, name, disabled=False)


@app.command(epilog=examples("fleetlight cell acknowledge cell2"))
def acknowledge(name: CellArgument, fleet: OpenFleet) -> None:
    """Confirm that the database of a cell was restored from a backup on purpose; this closes the finding."""
    cell = fleet.cell(name)
    was_open = fleet.restored_cells.acknowledge(cell.uuid)
    print_result(f"{cell.name}: {'acknowledged' if was_open else 'there is nothing to acknowledge'}")


@app.command(epilog=examples("fleetlight cell remove cell2", "fleetlight cell remove cell2 --yes"))
def remove(
    name: CellArgument,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    settings: LoadedSettings,
    fleet: OpenFleet,
    is_embedded: IsInDataFolder,
) -> None:
    """Remove a disabled cell and its queues from the index and the fleet. Its database stays as it is.

    A cell of a data folder cannot be removed: `fleetlight up` would create it again.
    The command waits until indexers and the relay have left the cell. If it is interrupted, run it again.
    """
    cell = fleet.cell(name)
    if not cell.disabled:
        raise CommandError(f"cell {cell.name} is in use; disable it first: `fleetlight cell disable {cell.name}`")
    if is_embedded:
        raise ConfigurationError(
            f"cell {cell.name} is one of a data folder: `fleetlight up` would make it again. It can stay disabled"
        )
    if not yes:
        _ask(cell, fleet.count_mappings(cell.uuid))
    removed = _remove(settings, fleet, cell)
    rows, mappings = counted(removed.rows, "row"), counted(removed.mappings, "instance mapping")
    print_result(f"{cell.name}: removed, {rows} from the index and {mappings}; its database is as it was")


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
        # A broker that is gone for good must not prevent the removal of the cell.
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
        # A relay needs this database too, and a cell whose database is gone for good must be removable.
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


def _remove_queue(settings: Settings, fleet: Fleet, cell: Cell) -> None:
    """Remove the cell's queue once no indexer or relay is left that would create it again."""
    ending = f"its queue {work_queue_name(cell.uuid)} stays, and fills up to its limit"
    deadline_s, on_wait = _waiting(settings, cell)
    with closing(CellLeases(fleet.open_leases("fleetlight cell disable"))) as leases:
        try:
            with leases.unfollowed(cell, deadline_s=deadline_s, on_wait=on_wait):
                wait_for_relay(cell, _is_relayed, deadline_s, on_wait)
                # If the cell was enabled meanwhile, its indexer needs the queue.
                if fleet.cell(cell.uuid).disabled:
                    remove_work_queue(cell.transport_url, cell.uuid, settings.bus)
        except BusError as error:
            print_notice(f"{error}; until it is removed there, {ending}")
        except (LeaseHeldError, CellInUseError) as error:
            print_notice(f"{error}; if that ends without this being repeated, {ending}")


def _waiting(settings: Settings, cell: Cell) -> tuple[float, Callable[[LeaseHeldError], None]]:
    """How long to wait for processes to leave a disabled cell, and a callback that announces the wait."""
    deadline_s = settings.fleet.cells_refresh_interval_s + _FINISHING_S

    def on_wait(error: LeaseHeldError) -> None:
        print_notice(f"waiting up to {deadline_s:g} s for {error.holder} to leave cell {cell.name}")

    return deadline_s, on_wait

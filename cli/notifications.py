"""`fleetlight notifications`: checks files, sends them to a cell's bus, and writes the schemas."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from fleetlight.bus.bus import Message, Publisher
from fleetlight.bus.producer import to_message
from fleetlight.bus.signatures import ProducerKey, signed_by_producer
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.native.outbox import append_external
from fleetlight.cells.model import Cell
from fleetlight.cli.errors import CommandError, ConfigurationError
from fleetlight.cli.fleet import LoadedSettings, OpenFleet, is_in_process
from fleetlight.cli.options import Output, OutputOption, examples
from fleetlight.cli.output import counted, print_error, print_paragraph, print_result, print_rows
from fleetlight.cli.settings import Settings
from fleetlight.notifications.check import CheckReport, check_file
from fleetlight.notifications.envelope import Notification, read_sample
from fleetlight.notifications.errors import BusError, ProducerKeyError
from fleetlight.notifications.registry import export_schemas
from fleetlight.notifications.versioned import DATA_KEY, NAME_KEY

app = typer.Typer(
    no_args_is_help=True,
    epilog=examples("fleetlight notifications check message.json", "fleetlight notifications schemas schemas/"),
)

FilesArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...",
        help="Files with one notification each, as JSON: with or without oslo.messaging envelope, or a bare sample.",
    ),
]


@app.command(
    epilog=examples(
        "fleetlight notifications check instance-create-end.json", "fleetlight notifications check --output json *.json"
    )
)
def check(files: FilesArgument, output: OutputOption = Output.TABLE) -> None:
    """Check files with notifications, and show what is wrong in each. Exit code 1 if any is invalid."""
    reports = [check_file(path) for path in files]
    if output is Output.TABLE:
        for report in reports:
            _print_report(report)
    else:
        rows = [row for report in reports for row in _as_rows(report)]
        print_rows(output, [_as_json(report) for report in reports], ("FILE", "VALID", "WHERE", "PROBLEM"), rows)
    if not all(report.is_valid for report in reports):
        raise typer.Exit(1)


@app.command(
    epilog=examples(
        "fleetlight notifications emit instance-update.json", "fleetlight notifications emit --cell cell2 *.json"
    )
)
def emit(
    files: FilesArgument,
    *,
    cell: Annotated[
        str | None,
        typer.Option(
            metavar="CELL", help="Name or uuid of the cell; by default that of the instance, or else the first."
        ),
    ] = None,
    key_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A producer's key (`fleetlight accounts producer`), for native cells."),
    ] = None,
    settings: LoadedSettings,
    fleet: OpenFleet,
) -> None:
    """Send notifications to the bus of a cell, in the order of the files.

    All files are checked first; invalid ones are refused, the others sent. Exit code 1 if any was not sent. A native
    cell accepts announcements of instances only if this is enabled (`fleetlight cell set`), and only from a producer
    that signs them or, in a data folder, from its own outbox.
    """
    key = None if key_file is None else _read_key(key_file)
    reports = [check_file(path) for path in files]
    for report in reports:
        if not report.is_valid:
            _print_report(report)
    letters = [_Letter.of(report.path) for report in reports if report.is_valid]
    by_cell: dict[Cell, list[_Letter]] = {}
    for letter in letters:
        by_cell.setdefault(_destination(fleet, cell, letter), []).append(letter)
    sent = sum(_send(destination, own, settings, key) for destination, own in by_cell.items())
    if sent < len(files):
        unsent = len(files) - sent
        raise CommandError(f"{unsent} of {counted(len(files), 'file')} {'was' if unsent == 1 else 'were'} not sent")


@app.command(epilog=examples("fleetlight notifications schemas ./schemas"))
def schemas(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to write to; created if missing.")],
) -> None:
    """Write the JSON Schema of every payload, each to its own file."""
    for path in export_schemas(directory):
        print_result(str(path))


@dataclass(frozen=True, slots=True)
class _Letter:
    """A valid notification to send: its file, its message, and the uuid of its instance, if any."""

    path: Path
    message: Message
    notification: Notification
    instance_uuid: str

    @classmethod
    def of(cls, path: Path) -> "_Letter":
        notification = read_sample(path.read_bytes(), now=datetime.now(UTC))
        payload = notification.payload
        is_instance = str(payload[NAME_KEY]).startswith("Instance")
        instance_uuid = str(payload[DATA_KEY]["uuid"]) if is_instance else ""
        return cls(path, to_message(notification), notification, instance_uuid)


def _destination(fleet: Fleet, name: str | None, letter: _Letter) -> Cell:
    if name is not None:
        return fleet.cell(name)
    mapping = fleet.mapping_of(letter.instance_uuid) if letter.instance_uuid else None
    if mapping is not None:
        return fleet.cell(mapping.cell_uuid)
    cells = [cell for cell in fleet.cells() if not cell.disabled]
    if not cells:
        raise CommandError("the fleet has no cell to send to")
    return cells[0]


def _read_key(path: Path) -> ProducerKey:
    """Read a producer's key. Raises ConfigurationError."""
    try:
        return ProducerKey.read(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"--key-file: cannot read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, ProducerKeyError) as error:
        raise ConfigurationError(f"--key-file: {path}: {ProducerKeyError()}") from error


def _problem(cell: Cell, letters: Sequence[_Letter], key: ProducerKey | None) -> str | None:
    """Why the cell would not accept these, as a sentence without its subject; None if it would."""
    if not cell.can.numbers_changes:
        return None
    if any(letter.instance_uuid for letter in letters) and not cell.takes_announcements:
        return f"takes no announcements of instances: `fleetlight cell set {cell.name} --announcements` lets it"
    if key is None and not is_in_process(cell):
        remedy = f"`fleetlight accounts producer NAME --cell {cell.name}`"
        return f"takes what is signed with the key of a producer: give --key-file ({remedy})"
    return None


def _send(cell: Cell, letters: Sequence[_Letter], settings: Settings, key: ProducerKey | None) -> int:
    """Send to one cell and print what was sent; returns how many were sent."""
    if problem := _problem(cell, letters, key):
        print_error(f"cell {cell.name} {problem}")
        return 0
    if is_in_process(cell):
        return _send_through_outbox(cell, letters)
    publisher = Publisher(cell.transport_url, cell.uuid, settings.bus, declares=key is None)
    try:
        messages = [letter.message for letter in letters]
        publisher.publish([signed_by_producer(each, cell.uuid, key) for each in messages] if key else messages)
    except BusError as error:
        print_error(f"cell {cell.name}: {error}")
        return 0
    finally:
        publisher.close()
    _print_sent(cell, letters)
    return len(letters)


def _send_through_outbox(cell: Cell, letters: Sequence[_Letter]) -> int:
    # The bus is inside `fleetlight up`, another process. Its relay publishes the cell's outbox: now or, if that process
    # is not running, later.
    if not cell.can.takes_changes:
        raise CommandError(f"cell {cell.name} has no bus that can be reached from here")
    engine = create_database_engine(cell.database_url, cell_uuid=cell.uuid)
    try:
        for letter in letters:
            append_external(engine, cell, letter.message.body, letter.message.routing_key, letter.instance_uuid)
    finally:
        engine.dispose()
    _print_sent(cell, letters)
    return len(letters)


def _print_sent(cell: Cell, letters: Iterable[_Letter]) -> None:
    for letter in letters:
        print_result(f"{letter.path}: {letter.notification.event_type} sent to cell {cell.name}")


def _print_report(report: CheckReport) -> None:
    if report.is_valid:
        print_paragraph(f"{report.path}: valid ({report.event_type}, {report.payload})")
    for problem in report.problems:
        print_paragraph(f"{report.path}: {problem}")


def _as_rows(report: CheckReport) -> Sequence[Sequence[str]]:
    """One row for each problem; one row for a file without problems."""
    if report.is_valid:
        return [(str(report.path), "yes", "-", "-")]
    return [(str(report.path), "no", problem.where, problem.what) for problem in report.problems]


def _as_json(report: CheckReport) -> dict[str, object]:
    return {
        "file": str(report.path),
        "valid": report.is_valid,
        "event_type": report.event_type,
        "payload": report.payload,
        "problems": [{"where": problem.where, "what": problem.what} for problem in report.problems],
    }

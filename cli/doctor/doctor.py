"""`fleetlight doctor`: its checks, and their order. Those of cells need the fleet's list of cells first."""

from collections.abc import Sequence
from importlib.metadata import version
from itertools import groupby

import typer

from fleetlight.cells.model import Cell
from fleetlight.cli.doctor.certificates import certificate_checks
from fleetlight.cli.doctor.checking import DEADLINE_S, Check, answers
from fleetlight.cli.doctor.checks import (
    IndexKnows,
    bus_check,
    cell_check,
    disk_checks,
    fleet_check,
    following_check,
    hosts_of,
    index_check,
    progress_check,
)
from fleetlight.cli.doctor.findings import Finding, State, ok, wrong
from fleetlight.cli.fleet import open_fleet, sorted_by_name
from fleetlight.cli.options import ConfigOption, DataDirOption, JsonOption, examples
from fleetlight.cli.output import print_json, print_table
from fleetlight.cli.settings import Settings, load_settings
from fleetlight.resources.clock import system_clock

app = typer.Typer()


@app.command(
    epilog=examples(
        "fleetlight doctor", "fleetlight doctor --json", "fleetlight doctor --config /etc/fleetlight/indexer.toml"
    )
)
def doctor(config: ConfigOption = None, data_dir: DataDirOption = None, json: JsonOption = False) -> None:
    """Check everything that a fleet needs, and say for each fault what to do about it.

    It checks databases with their versions, tables, rights and clocks; buses; the index with its aliases and disks,
    and whether it follows each cell; and when certificates end. All checks run at once, with the configured accounts,
    and end within seconds even where a server hangs.

    Exit code 1 if anything is wrong, 2 if the configuration makes no sense.
    """
    settings = load_settings(config, data_dir)
    found = _examined(settings)
    if json:
        print_json([_as_json(finding) for finding in found])
    else:
        rows = [[each.about, each.state, each.says, each.remedy or "-"] for each in found]
        print_table(("WHAT", "STATE", "FOUND", "WHAT TO DO"), rows)
    if any(finding.state is State.WRONG for finding in found):
        raise typer.Exit(1)


def _examined(settings: Settings) -> list[Finding]:
    clock = system_clock
    use = "" if settings.search.enabled else "; an API with it lists from the cells alone (search.enabled is off)"
    own = ok("configuration", f"fleetlight {version('fleetlight')}, index in {settings.index.backend}{use}")
    with open_fleet(settings.fleet, answer_timeout_s=DEADLINE_S) as fleet:
        cells: list[Cell] = []
        known = IndexKnows()

        def read_cells() -> Sequence[Finding]:
            cells.extend(sorted_by_name(fleet.cells()))
            return [] if cells else [wrong("cells", "there are none", "`fleetlight cell add native NAME`")]

        first = answers(
            [
                fleet_check(settings, clock),
                Check("cells", read_cells, "the fleet database has to answer first"),
                index_check(settings),
                progress_check(settings, fleet, known),
            ]
        )
        return [own, *hosts_of(settings), *first, *answers(_about_cells(settings, known, tuple(cells)))]


def _about_cells(settings: Settings, known: IndexKnows, cells: Sequence[Cell]) -> list[Check]:
    enabled = [cell for cell in cells if not cell.disabled]
    with_bus = sorted((cell for cell in enabled if cell.transport_url), key=lambda cell: cell.transport_url)
    buses = [list(group) for _, group in groupby(with_bus, key=lambda cell: cell.transport_url)]
    return [
        *(cell_check(cell, system_clock) for cell in enabled),
        *(bus_check(sharing, settings.bus) for sharing in buses),
        *(
            following_check(cell, known.indexed, known.dead_letters, settings, system_clock)
            for cell in enabled
            if known.indexed is not None
        ),
        *certificate_checks(settings, enabled, system_clock),
        *disk_checks(settings, cells),
    ]


def _as_json(finding: Finding) -> dict[str, str | None]:
    return {
        "about": finding.about,
        "state": finding.state.value,
        "found": finding.says,
        "what_to_do": finding.remedy,
    }

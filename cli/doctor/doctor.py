"""`fleetlight doctor`: prints all findings, one by one."""

import typer

from fleetlight.cells.findings import State
from fleetlight.cli.doctor.examination import as_json, examined
from fleetlight.cli.fleet import LoadedSettings
from fleetlight.cli.options import Output, OutputOption, examples
from fleetlight.cli.output import print_rows, print_summary

app = typer.Typer()

_COLUMNS = ("WHAT", "STATE", "FOUND", "WHAT TO DO")


@app.command(
    epilog=examples(
        "fleetlight doctor",
        "fleetlight doctor --output json",
        "fleetlight doctor --config /etc/fleetlight/indexer.toml",
    )
)
def doctor(settings: LoadedSettings, output: OutputOption = Output.TABLE) -> None:
    """Check everything that a fleet needs, and say for each fault what to do about it.

    It checks databases with their versions, tables, rights and clocks; buses; the index with its aliases and disks, and
    whether it follows each cell; and when certificates expire. All checks run at once, with the configured accounts,
    and end within seconds even if a server hangs.

    Faults come first; `fleetlight status` shows only those, on one screen.
    Exit code 1 if anything is wrong, 2 if the configuration makes no sense.
    """
    found = examined(settings)
    worst_first = sorted(found.findings, key=lambda finding: list(State).index(finding.state), reverse=True)
    rows = [[each.about, each.state, each.evidence, each.remedy or "-"] for each in worst_first]
    if output is Output.TABLE:
        print_summary(found.counts())
    print_rows(output, [as_json(finding) for finding in found.findings], _COLUMNS, rows)
    if found.wrong:
        raise typer.Exit(1)

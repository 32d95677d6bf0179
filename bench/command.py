"""`scripts/bench [NAME…] [--quick] [--json FILE]`: run benchmarks and print what they measured."""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import (
    audit,
    balance,
    cache,
    console,
    feed,
    hostile,
    ingest,
    latency,
    listing,
    load,
    memory,
    nova_following,
    query,
    recovery,
    reservations,
    scheduler,
    sync,
    sync_processes,
    usage,
    verify,
)
from bench.faults.command import main as break_things
from bench.measure import Figure
from bench.scale import run as scale

BENCHES = {
    "audit": audit.run,
    "balance": balance.run,
    "console": console.run,
    "feed": feed.run,
    "list": listing.run,
    "load": load.run,
    "hostile": hostile.run,
    "ingest": ingest.run,
    "latency": latency.run,
    "memory": memory.run,
    "nova.following": nova_following.run,
    "query": query.run,
    "recovery": recovery.run,
    "reservations": reservations.run,
    "scale": scale.run,
    "scheduler": scheduler.run,
    "sync": sync.run,
    "sync-processes": sync_processes.run,
    "usage": usage.run,
    "verify": verify.run,
    "cache": cache.run,
}
_PARTS = {**listing.PARTS, **scale.PARTS}
_FAULTS = "faults"


def main() -> int:
    """Run the benchmarks; 0 when every goal is met of what was measured, and all was measured as it should be."""
    if sys.argv[1:2] == [_FAULTS]:
        return break_things(sys.argv[2:])
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Measure Fleetlight against bare loops of the same libraries, as ratios in one run.",
        epilog="Real servers are measured where FLEETLIGHT_TEST_ELASTICSEARCH_URL and the like name them. "
        "Example: scripts/bench list --quick --json figures.json. "
        f"scripts/bench {_FAULTS} --help tells of another kind, which breaks things and counts what was lost.",
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"which ones ({', '.join(BENCHES)}; default: all), or parts of one ({', '.join(_PARTS)})",
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the data, fewer runs: does it work at all?")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there, as a list of objects")
    arguments = parser.parse_args()
    known = {**BENCHES, **_PARTS}
    unknown = [name for name in arguments.names if name not in known]
    if unknown:
        parser.error(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(known)}")

    terminal = Console()
    figures: list[Figure] = []
    for name in arguments.names or BENCHES:
        with tempfile.TemporaryDirectory(prefix="fleetlight-bench-") as directory:
            for figure in known[name](Path(directory), arguments.quick):
                figures.append(figure)
                terminal.print(f"{figure.name}: {figure.what}", style="dim", soft_wrap=True, highlight=False)
    terminal.print(_table(figures))
    if arguments.json:
        arguments.json.write_text(json.dumps([figure.as_json() for figure in figures], indent=2) + "\n")
    return 0 if all(figure.is_valid and figure.met is not False for figure in figures) else 1


def _table(figures: list[Figure]) -> Table:
    table = Table("name", "value", "unit", "goal", "met", "runs")
    for figure in figures:
        met = {None: "", True: "[green]yes[/green]", False: "[red]NO[/red]"}[figure.met]
        if not figure.is_valid:
            met = "[red]not valid[/red]"
        table.add_row(figure.name, f"{figure.value:g}", figure.unit, figure.goal or "", met, str(figure.runs))
    return table

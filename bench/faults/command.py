"""`scripts/bench faults [FAULT…] [--rounds N] [--seed N] [--json FILE]`: break things, and print what was lost."""

import argparse
import json
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.faults.faults import FAULTS
from bench.faults.run import FaultOutcome, Supply, run_fault
from fleetlight.cli.logging import LogSettings, configure_logging
from scripts.servers.opensearch import OpenSearch

_ROUNDS = 10
_FEED = "feed: changes that a consumer lost / got twice / got out of order / cursors that it was refused"
_SHARED = {"elasticsearch": "FLEETLIGHT_TEST_ELASTICSEARCH_URL", "rabbitmq": "FLEETLIGHT_TEST_AMQP_URL"}
_SHARED["postgresql"] = "FLEETLIGHT_TEST_POSTGRESQL_URL"


def main(words: list[str]) -> int:
    """0 when no fault has cost anything."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench faults",
        description="Break things under a load of operations on 8 cells, and count what was lost by it.",
        epilog=f"Faults: {', '.join(FAULTS)}. Servers that a fault kills are started for it, and all those that the "
        "environment does not name. Example: scripts/bench faults 'index cut off' poison --quick --seed 7",
    )
    parser.add_argument("names", nargs="*", metavar="FAULT", help="which ones (default: all that can be caused here)")
    often = parser.add_mutually_exclusive_group()
    often.add_argument("--rounds", type=int, default=_ROUNDS, metavar="N", help=f"break each thing N times ({_ROUNDS})")
    often.add_argument("--quick", action="store_const", const=1, dest="rounds", help="break each thing once")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the operations and of the faults (1)")
    parser.add_argument("--opensearch", action="store_true", help="with the index in OpenSearch")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the table there, as a list of objects")
    arguments = parser.parse_args(words)
    unknown = [name for name in arguments.names if name not in FAULTS]
    if unknown:
        parser.error(f"no fault is called {unknown[0]!r}; there are {', '.join(FAULTS)}")

    # What the parts say of the faults is what they are meant to say.
    configure_logging(LogSettings(level="error"))
    console = Console()
    names = arguments.names or [name for name, fault in FAULTS.items() if not fault.small_disk or os.geteuid() == 0]
    variables = {**_SHARED, "elasticsearch": OpenSearch.VARIABLE} if arguments.opensearch else _SHARED
    shared = {kind: os.environ[variable] for kind, variable in variables.items() if os.environ.get(variable)}
    seed, rounds = arguments.seed, arguments.rounds
    outcomes: list[FaultOutcome] = []
    with ExitStack() as stack:
        supply = Supply(stack, shared, in_opensearch=arguments.opensearch)
        for name in names:
            with tempfile.TemporaryDirectory(prefix="fleetlight-faults-") as folder:
                outcomes.append(run_fault(FAULTS[name], supply, Path(folder), seed=seed, rounds=rounds))
            console.print(f"{name}: {'nothing lost' if outcomes[-1].is_clean else outcomes[-1].damage}", style="dim")
            for note in outcomes[-1].notes:
                console.print(f"  {note}", style="dim")
    console.print(_table(outcomes))
    left_out = [name for name in FAULTS if name not in names]
    if left_out and not arguments.names:
        console.print(f"not caused, since that takes root: {', '.join(left_out)}")
    if arguments.json:
        arguments.json.write_text(
            json.dumps([_as_json(outcome, arguments.seed) for outcome in outcomes], indent=2) + "\n"
        )
    return 0 if all(outcome.is_clean for outcome in outcomes) else 1


def _table(outcomes: list[FaultOutcome]) -> Table:
    table = Table("fault", "events", "lost", "doubled", "resurrected", "verify", "feed", "recovery", caption=_FEED)
    for outcome in outcomes:
        cost = outcome.damage
        feed = (cost.feed_lost, cost.feed_doubled, cost.feed_disordered, cost.feed_refused)
        counts = (outcome.events, cost.lost, cost.doubled, cost.resurrected, cost.unverified, "/".join(map(str, feed)))
        table.add_row(outcome.fault, *map(str, counts), f"{outcome.recovery_s:.1f} s")
    return table


def _as_json(outcome: FaultOutcome, seed: int) -> dict[str, object]:
    cost = outcome.damage
    return {
        "fault": outcome.fault,
        "seed": seed,
        "events": outcome.events,
        "lost": cost.lost,
        "doubled": cost.doubled,
        "resurrected": cost.resurrected,
        "differences_found_by_verify": cost.unverified,
        "feed_lost": cost.feed_lost,
        "feed_doubled": cost.feed_doubled,
        "feed_disordered": cost.feed_disordered,
        "feed_refused": cost.feed_refused,
        "recovery_s": round(outcome.recovery_s, 3),
    }

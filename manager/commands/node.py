"""`fleetlight node refresh`: lets jobs read the state of nodes, and shows their results."""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import uuid4

import typer
from sqlalchemy import Engine

from fleetlight.cells.database.engines import cell_failures
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.job_words import ENDED
from fleetlight.cells.kinds.native.items.jobs import read_jobs
from fleetlight.cells.kinds.opening import open_changelog_adapter
from fleetlight.cells.model import Cell, RequestContext
from fleetlight.cli.errors import CommandError, ConfigurationError
from fleetlight.cli.fleet import OpenFleet, chosen_cells
from fleetlight.cli.options import CellOption, examples
from fleetlight.cli.output import counted, print_notice, print_result
from fleetlight.cli.work_progress import Show, shown_progress
from fleetlight.manager.operations.hosts.agent_addresses import AgentAddresses
from fleetlight.manager.operations.opcodes.refresh import NodeSnapshotRefresh
from fleetlight.manager.operations.submitting import JobSubmission
from fleetlight.resources.suggestions import did_you_mean

app = typer.Typer(
    no_args_is_help=True,
    help="Read the state that nodes with an agent report.",
    epilog=examples("fleetlight node refresh", "fleetlight node refresh --cell cell1 compute1.example.org"),
)

_POLL_INTERVAL_S = 0.2


@app.callback()
def _group() -> None:
    """Makes this a group, although it has only one command."""


@dataclass(slots=True)
class _Refresh:
    """A job that reads the state of `count` nodes of a cell. number: None until it is submitted."""

    cell: Cell
    engine: Engine
    nodes: Sequence[str]
    count: int
    number: int | None = None


@app.command(
    epilog=examples(
        "fleetlight node refresh",
        "fleetlight node refresh --cell cell1",
        "fleetlight node refresh compute1.example.org compute2.example.org",
    )
)
def refresh(
    nodes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NODE]...", help="The nodes to read, by name or uuid; by default all with an agent."),
    ] = None,
    *,
    cell: CellOption = None,
    wait: Annotated[
        float, typer.Option("--wait", min=0, metavar="SECONDS", help="How long to wait for the end of the jobs.")
    ] = 60.0,
    fleet: OpenFleet,
) -> None:
    """Read the whole state of nodes from their agents, and store it.

    If nodes of several cells share a name, all of them are read, and the output shows the cells. Differences from the
    stored state are announced on the bus of the cell. Exit code 1 if a node does not answer.
    """
    with ExitStack() as opened:
        asked = _planned(fleet, opened, cell, nodes or ())
        if not asked:
            raise ConfigurationError("no node has an agent; `fleetlight host agent` says where the agent of a host is")
        with shown_progress("nodes") as start:
            shows = [start(each.cell.name, each.count) for each in asked]
            for each in asked:
                _submit(each)
            failures = list(_results(asked, shows, wait))
    for text in failures:
        print_notice(text)
    if failures:
        raise CommandError(f"{counted(len(failures), 'node')} of {sum(each.count for each in asked)} did not answer")


def _planned(fleet: Fleet, opened: ExitStack, cell: str | None, names: Sequence[str]) -> Sequence[_Refresh]:
    """The jobs for each cell. Raises UnknownCellError, ConfigurationError, CellUnreachableError."""
    found: list[_Refresh] = []
    missing, known = set(names), set[str]()
    for each in chosen_cells(fleet, cell):
        if not each.can.takes_changes:
            if cell is not None:
                raise ConfigurationError(f"cell {each.name} is not a native one: its nodes have no agents of ours")
            continue
        engine = opened.enter_context(closing(open_changelog_adapter(each))).engine
        agents = AgentAddresses(engine, each)
        of_name = {name: agents.of([name]) for name in names}
        missing -= {name for name, of in of_name.items() if of}
        wanted = sorted({agent.node for of in of_name.values() for agent in of})
        with_agent = agents.all()
        known |= {agent.node for agent in with_agent}
        count = len(wanted) if names else sum(not agent.is_offline for agent in with_agent)
        if wanted or (with_agent and not names):
            found.append(_Refresh(each, engine, wanted, count))
    if missing:
        called = ", ".join(sorted(missing))
        raise ConfigurationError(f"there is no node with an agent called {called}{did_you_mean(min(missing), known)}")
    return found


def _submit(each: _Refresh) -> None:
    opcode = NodeSnapshotRefresh(nodes=list(each.nodes))
    each.number = JobSubmission(each.engine, each.cell).submit([opcode], RequestContext(f"req-{uuid4()}"))


def _results(asked: Sequence[_Refresh], shows: Sequence[Show], wait_s: float) -> Iterable[str]:
    """Wait for all jobs; yields a message for each node that failed. Raises CommandError."""
    deadline = time.monotonic() + wait_s
    for each, show in zip(asked, shows, strict=True):
        job = _ended_job(each, deadline, wait_s)
        if job["status"] != "success":
            raise CommandError(f"{each.cell.name}: job {each.number}: {job['opresult'][-1][1][0]}")
        results: Sequence[Any] = job["opresult"][-1]
        show(len(results))
        done = sum(is_ok for _, is_ok, _ in results)
        print_result(f"{each.cell.name}: {counted(done, 'node')} refreshed")
        yield from (f"{each.cell.name}: {name}: {text}" for name, is_ok, text in results if not is_ok)


def _ended_job(each: _Refresh, deadline: float, wait_s: float) -> Mapping[str, Any]:
    while True:
        with cell_failures(each.cell.name), each.engine.connect() as connection:
            [job] = read_jobs(connection, each.cell, ("status", "opresult"), [each.number])
        if job["status"] in ENDED:
            return job
        if time.monotonic() >= deadline:
            print_notice(f"Job {each.number} goes on; `fleetlight list jobs {each.number}` tells how it ends")
            raise CommandError(f"job {each.number} has not ended after {wait_s:g} seconds: is a worker running?")
        time.sleep(_POLL_INTERVAL_S)

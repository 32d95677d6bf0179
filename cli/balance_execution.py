"""The moves of `fleetlight balance --execute`: carried out, with their progress."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager

from fleetlight.cells.errors import CellError, CellUnreachableError
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.opening import open_changelog_adapter
from fleetlight.cells.model import Cell
from fleetlight.cli.errors import CommandError, ConfigurationError
from fleetlight.cli.fleet import chosen_cells, open_fleet
from fleetlight.cli.output import counted, print_notice
from fleetlight.cli.settings import Settings
from fleetlight.cli.work_progress import shown_progress
from fleetlight.operations.balancing.plan import BalancePlan
from fleetlight.operations.rebalancing.execution import Execution, finish_unfinished
from fleetlight.operations.rebalancing.jobs import MoveJobs

_POLL_INTERVAL_S = 0.2


@contextmanager
def cells_to_balance(settings: Settings, name: str | None) -> Iterator[Mapping[str, MoveJobs]]:
    """The native cells, by name, or the one that is named; no other call moves anything there meanwhile.

    What earlier calls have left under way has ended. Raises ConfigurationError for a cell that is only read,
    UnknownCellError, CellUnreachableError, and CommandError for a cell in which another process moves instances.
    """
    with open_fleet(settings.fleet) as fleet, ExitStack() as stack:
        leases = stack.enter_context(closing(fleet.open_leases("fleetlight balance")))
        found = {}
        for cell in _changeable(fleet, name):
            lease = f"balance of cell {cell.uuid}"
            if not leases.acquire(lease):
                raise CommandError(f"cell {cell.name}: {leases.holder(lease)} moves its instances; wait until it ends")
            adapter = stack.enter_context(closing(open_changelog_adapter(cell)))
            jobs = MoveJobs(adapter.engine, fleet, cell)
            try:
                for left in finish_unfinished(jobs, _pause):
                    print_notice(f"Cell {cell.name}: waiting for {counted(left, 'job')} of an earlier call")
            except CellUnreachableError as error:
                if name is not None:
                    raise
                print_notice(str(error))
            else:
                found[cell.name] = jobs
        yield found


def _changeable(fleet: Fleet, name: str | None) -> Iterator[Cell]:
    for cell in chosen_cells(fleet, name):
        if cell.can.takes_changes:
            yield cell
        elif name is None:
            print_notice(f"Cell {cell.name} is only read (kind '{cell.kind}'): nothing is moved there")
        else:
            text = f"cell {cell.name} is only read (kind '{cell.kind}'); without --execute its moves are shown"
            raise ConfigurationError(f"--execute: {text}")


def carry_out(jobs: Mapping[str, MoveJobs], plans: Mapping[str, BalancePlan]) -> Mapping[str, Execution]:
    """Make the moves of each cell, by its name, and wait for their end; whatever ends that first says what goes on."""
    executions = {
        name: Execution(jobs[name], [move for group in plan.groups for move in group.moves])
        for name, plan in plans.items()
    }
    with shown_progress("moves") as start:
        bars = {name: start(name, len(execution.moves)) for name, execution in executions.items()}
        try:
            _run(executions, lambda name: bars[name](executions[name].made))
        except (KeyboardInterrupt, CellError):
            for name, execution in executions.items():
                _tell_what_goes_on(name, execution)
            raise
    return executions


def _run(executions: Mapping[str, Execution], show: Callable[[str], None]) -> None:
    while not all(execution.is_over for execution in executions.values()):
        for name, execution in executions.items():
            execution.advance()
            show(name)
        if not all(execution.is_over for execution in executions.values()):
            _pause()


def _tell_what_goes_on(name: str, execution: Execution) -> None:
    made = f"Cell {name}: {execution.made} of {counted(len(execution.moves), 'move')} made"
    numbers = [str(each.job) for each in execution.moves if each.is_under_way]
    print_notice(f"{made}; nothing more is submitted" + (f", and jobs {', '.join(numbers)} go on" if numbers else ""))


def failures(executions: Mapping[str, Execution]) -> Sequence[str]:
    """A sentence on each move that has failed."""
    return [
        f"{each.move.instance}: {'' if each.job is None else f'job {each.job}: '}{ending.why or ending.status}"
        for execution in executions.values()
        for each in execution.moves
        if (ending := each.ending) is not None and not each.is_made
    ]


def _pause() -> None:
    time.sleep(_POLL_INTERVAL_S)

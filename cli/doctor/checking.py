"""Checks that run at once, each with a deadline: one that hangs costs no other one its answer."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fleetlight.cells.daemon_threads import have_answered, in_background
from fleetlight.cells.errors import CellError
from fleetlight.cells.findings import Finding, wrong
from fleetlight.indexer.errors import IndexerError
from fleetlight.notifications.errors import BusError

DEADLINE_S = 5.0
"""For all checks that run at once, unless one may take longer."""


@dataclass(frozen=True, slots=True)
class Check:
    """about: of the finding when there is no answer. run: raises what means that. remedy: what to do then."""

    about: str
    run: Callable[[], Sequence[Finding]]
    remedy: str
    deadline_s: float = DEADLINE_S


def answers(checks: Sequence[Check]) -> list[Finding]:
    """What is found, in the order of the checks. Those that hang are left behind, in threads that end with us."""
    running = [in_background(check.run, f"doctor-{check.about}") for check in checks]
    have_answered(running, max((check.deadline_s for check in checks), default=DEADLINE_S))

    def findings() -> Iterator[Finding]:
        for check, answer in zip(checks, running, strict=True):
            if not answer.done():
                yield wrong(check.about, f"no answer within {check.deadline_s:g} s", check.remedy)
                continue
            try:
                yield from answer.result()
            except (CellError, IndexerError, BusError, OSError) as error:
                yield wrong(check.about, str(error), check.remedy)

    return list(findings())

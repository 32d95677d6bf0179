"""Questions put all at once, each with a deadline: what hangs costs no other question its answer."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from dataclasses import dataclass

from fleetlight.cells.daemon_threads import in_background
from fleetlight.cells.errors import CellError
from fleetlight.cli.doctor.findings import Finding, Findings, wrong
from fleetlight.indexer.errors import IndexerError
from fleetlight.notifications.errors import BusError

DEADLINE_S = 5.0
"""For all questions that are put at once."""


@dataclass(frozen=True, slots=True)
class Question:
    """about: for the finding that there is no answer. ask: raises what means that. remedy: what to do then."""

    about: str
    ask: Callable[[], Findings]
    remedy: str


def answers(questions: Sequence[Question]) -> list[Finding]:
    """What is found, in the order of the questions. Those that hang are left behind, in threads that end with us."""
    asked = [in_background(question.ask, f"doctor-{question.about}") for question in questions]
    wait(asked, DEADLINE_S)

    def findings() -> Iterator[Finding]:
        for question, answer in zip(questions, asked, strict=True):
            if not answer.done():
                yield wrong(question.about, f"no answer within {DEADLINE_S:g} s", question.remedy)
                continue
            try:
                yield from answer.result()
            except (CellError, IndexerError, BusError, OSError) as error:
                yield wrong(question.about, str(error), question.remedy)

    return list(findings())

"""What a question is answered with, and what one has to know to answer it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from fleetlight.api.caller import Caller
from fleetlight.api.query.observing import QuestionObserver
from fleetlight.api.query.question import Question
from fleetlight.api.shared.proof import AskedFreshness
from fleetlight.listing.answer import Page
from fleetlight.views.query2.projection import Row


@dataclass(frozen=True, slots=True)
class Answer:
    """rows: in their order. after: the position of the row to go on after; None at the end.

    proof: which cells the rows are of, and how they were asked.
    """

    rows: Sequence[Row]
    after: Sequence[Any] | None
    proof: Page


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with who asks it, and how: as of `Answerer.answer`."""

    question: Question
    caller: Caller
    fresh: AskedFreshness
    only: Collection[str] | None
    observer: QuestionObserver | None = None

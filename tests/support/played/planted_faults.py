"""Faults of a compute API, each put into the answers of one that has none, as a proxy before it would."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fleetlight.cli.compare.differences import Answer
from fleetlight.cli.compare.questions import VERSION_HEADER, Question

Rows = list[dict[str, Any]]


def _rows(change: Callable[[Rows], object], least: int = 1) -> Callable[[Answer], Answer]:
    """A change of the rows of each list that has so many."""

    def faulty(answer: Answer) -> Answer:
        if len(answer.servers) < least:
            return answer
        document = copy.deepcopy(answer.document)
        change(document["servers"])
        return replace(answer, document=document)

    return faulty


def swap(rows: Rows) -> None:
    rows[0], rows[1] = rows[1], rows[0]


def rename(rows: Rows) -> None:
    rows[1]["name"] = "a name that it does not have"


def lose_next_link(answer: Answer) -> Answer:
    if answer.next_link is None:
        return answer
    return replace(answer, document={"servers": answer.document["servers"]})


def fail(answer: Answer) -> Answer:
    if not answer.servers:
        return answer
    return replace(answer, status=500, document={"computeFault": {"code": 500, "message": "planted"}})


def answer_as_older(answer: Answer) -> Answer:
    return replace(answer, headers={VERSION_HEADER: "compute 2.1"})


PLANTED: Mapping[str, tuple[Callable[[Answer], Answer], tuple[str, str]]] = {
    "a row is dropped": (_rows(lambda rows: rows.pop(1), least=3), ("missing row", "extra row")),
    "two rows are swapped": (_rows(swap, least=2), ("order", "order")),
    "a value is changed": (_rows(rename, least=2), ("value of name", "value of name")),
    "a key is dropped": (_rows(lambda rows: rows[0].pop("name")), ("value of name", "value of name")),
    "a row is doubled": (_rows(lambda rows: rows.insert(1, rows[0]), least=2), ("extra row", "missing row")),
    "a page is cut": (_rows(lambda rows: rows.__delitem__(slice(2, None)), least=3), ("missing row", "extra row")),
    "status 500": (fail, ("status", "status")),
    "the next link is lost": (lose_next_link, ("links", "links")),
    "another microversion answers": (answer_as_older, ("microversion", "microversion")),
}
"""By what is wrong: how, and the class of differences that it is where Fleetlight has it, and where Nova has it."""


@dataclass
class Faulty:
    """An API with a fault. See fleetlight.cli.compare.comparison.Asked."""

    ask_sound: Callable[[Question], Answer]
    fault: Callable[[Answer], Answer]

    def ask(self, question: Question) -> Answer:
        return self.fault(self.ask_sound(question))


@dataclass
class Late:
    """An API that shows a change of a name in none of its first `left` answers."""

    ask_sound: Callable[[Question], Answer]
    left: int

    def ask(self, question: Question) -> Answer:
        answer = self.ask_sound(question)
        self.left -= 1
        return answer if self.left < 0 else _rows(rename, least=2)(answer)

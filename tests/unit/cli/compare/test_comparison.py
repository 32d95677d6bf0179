"""Two APIs in memory, one of them with a fault: what is found, how it is classed, and what is no difference."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pytest

from fleetlight.cli.compare.cases import Case, Round
from fleetlight.cli.compare.comparison import Asked, Comparison
from fleetlight.cli.compare.differences import Answer
from fleetlight.cli.compare.questions import BRIEF, DETAILED, Question
from fleetlight.cli.compare.tally import Tally
from tests.support.played.compute_api import PlayedApi, server
from tests.support.played.planted_faults import PLANTED, Faulty, Late

NOVA, OURS = "http://nova:8774", "https://fleetlight/compute"
QUESTIONS = (
    Question(DETAILED, (("all_tenants", "1"),), "2.96"),
    Question(DETAILED, (("name", "web"), ("limit", "4")), "2.96"),
    Question(BRIEF, (("limit", "3"),), "2.96"),
    Question(f"{BRIEF}/{server(2, NOVA)['id']}", (), "2.96"),
    Question(f"{BRIEF}/nobody", (), "2.96"),
)
SETTLE_S = 10.0


@dataclass
class Time:
    """A clock that goes on by what is waited for, and a little with each question."""

    now_s: float = 0.0

    def clock(self) -> float:
        self.now_s += 0.001
        return self.now_s

    def pause(self, seconds: float) -> None:
        self.now_s += seconds


def sound() -> tuple[PlayedApi, PlayedApi]:
    return PlayedApi.with_servers(8, NOVA), PlayedApi.with_servers(8, OURS, Fleetlight_Complete="true")


def compared(nova: Asked, ours: Asked, time: Time | None = None, *questions: Question | None) -> Tally:
    time, tally = time or Time(), Tally()
    comparison = Comparison(nova, ours, tally, SETTLE_S, lambda: None, clock=time.clock, pause=time.pause)
    comparison.run(iter(questions or QUESTIONS), most=None, for_s=None)
    return tally


def test_apis_that_agree_are_the_same_whatever_their_addresses() -> None:
    tally = compared(*sound())
    assert (tally.asked, tally.same, tally.differing) == (5, 5, {})
    assert tally.said_complete == {"true": 5}


@pytest.mark.parametrize("side", ["Fleetlight", "Nova"])
@pytest.mark.parametrize("name", PLANTED)
def test_planted_fault_is_found_and_classed(name: str, side: str) -> None:
    nova, ours = sound()
    fault, classes = PLANTED[name]
    tally = compared(nova, Faulty(ours.ask, fault)) if side == "Fleetlight" else compared(Faulty(nova.ask, fault), ours)
    assert set(tally.differing) == {classes[side == "Nova"]}
    assert tally.late == {}
    assert tally.explained == {}


@pytest.mark.parametrize("side", ["Fleetlight", "Nova"])
def test_late_value_is_late_and_no_difference(side: str) -> None:
    nova, ours = sound()
    # Nova is asked twice in a round.
    late = Late(ours.ask, 2) if side == "Fleetlight" else Late(nova.ask, 4)
    apis = (nova, late) if side == "Fleetlight" else (late, ours)
    tally = compared(*apis, None, QUESTIONS[0])
    assert (tally.differing, set(tally.late)) == ({}, {"value of name"})
    assert 0 < tally.late["value of name"].waited_s < SETTLE_S
    assert tally.late_requests == 1


def moving() -> Callable[[Answer], Answer]:
    """The first server of a list has another status in each answer."""
    numbers = count()

    def changed(answer: Answer) -> Answer:
        if not answer.servers:
            return answer
        first, *others = answer.servers
        return replace(answer, document={"servers": [{**first, "status": f"{next(numbers)}"}, *others]})

    return changed


def test_what_changes_between_two_answers_of_nova_is_moving() -> None:
    nova, ours = sound()
    tally = compared(Faulty(nova.ask, moving()), ours, None, QUESTIONS[0])
    assert (tally.moving_requests, tally.differing, tally.late) == (1, {}, {})
    assert tally.moving == QUESTIONS[0]


def test_difference_of_one_server_is_found_beside_another_that_moves() -> None:
    nova, ours = sound()
    fault, _ = PLANTED["a value is changed"]
    tally = compared(Faulty(nova.ask, moving()), Faulty(ours.ask, fault), None, QUESTIONS[0])
    assert set(tally.differing) == {"value of name"}


def test_smallest_request_that_shows_a_difference_is_shown() -> None:
    nova, ours = sound()
    ours.rows = [{**row, "status": "ERROR"} if row["name"] == "web-3" else row for row in ours.rows]
    asked = Question(DETAILED, (("name", "web"), ("limit", "5"), ("all_tenants", "1")), "2.96")
    [found] = compared(nova, ours, None, asked).differing.values()
    assert found.question == Question(f"{BRIEF}/{server(3, NOVA)['id']}", (), "2.96")
    ours.rows = [*ours.rows[:3], *ours.rows[4:]]
    [found] = compared(nova, ours, None, asked).differing.values()
    assert found.question == Question(DETAILED, (), "2.96")


def test_pages_are_followed_by_the_markers_of_nova() -> None:
    nova, ours = sound()
    tally = compared(nova, ours, None, Question(BRIEF, (("limit", "3"),), pages=9))
    assert tally.same == 3
    assert [each.values("marker") for each in ours.asked] == [[], [nova.rows[2]["id"]], [nova.rows[5]["id"]]]


def test_row_that_is_missing_explains_the_rest_of_its_page() -> None:
    nova, ours = sound()
    ours.rows = [*ours.rows[:1], *ours.rows[2:]]
    tally = compared(nova, ours, None, Question(DETAILED, (("limit", "4"),)))
    assert {name: found.count for name, found in tally.differing.items()} == {"missing row": 1}


def test_comparison_ends_after_so_many_requests_or_so_long() -> None:
    time = Time()
    nova, ours = sound()
    comparison = Comparison(nova, ours, Tally(), SETTLE_S, lambda: time.pause(1), clock=time.clock, pause=time.pause)
    comparison.run(endless(), most=7, for_s=None)
    assert comparison.tally.asked == 7
    comparison.run(endless(), most=None, for_s=5)
    assert 10 <= comparison.tally.asked <= 13


def test_questions_that_have_to_settle_count_before_they_have() -> None:
    nova, ours = sound()
    fault, _ = PLANTED["a value is changed"]
    time, shown = Time(), list[int]()
    comparison = Comparison(
        nova, Faulty(ours.ask, fault), Tally(), SETTLE_S, lambda: None, shown.append, time.clock, time.pause
    )
    comparison.run(endless(), most=7, for_s=None)
    assert (comparison.tally.asked, comparison.tally.unsettled, shown) == (7, 0, [1, 2, 3, 4, 5, 6, 7])


def endless() -> Iterator[Question | None]:
    while True:
        yield None
        yield QUESTIONS[0]


def listed(*rows: dict[str, Any]) -> Answer:
    return Answer(200, {"servers": list(rows)})


WAITING = {"id": "a", "name": "x", "status": "BUILD", "hostId": ""}
PLACED = WAITING | {"status": "ACTIVE", "hostId": "h1", "flavor": "big"}


@dataclass
class InTurn:
    """An API that gives these answers, and the last of them for ever."""

    answers: list[Answer]

    def ask(self, _question: Question) -> Answer:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.mark.parametrize(
    ("ours", "classes"),
    [
        ([listed()], {"missing row"}),
        ([listed(WAITING)], {"value of status", "value of hostId", "value of flavor"}),
        (
            [listed(WAITING), listed(PLACED | {"status": "ERROR", "hostId": "h2"})],
            {"value of status", "value of hostId"},
        ),
    ],
)
def test_server_that_waited_once_differs_like_any_other_when_it_has_a_host(
    ours: list[Answer], classes: set[str]
) -> None:
    asked = Question(DETAILED, (("name", "x"),), "2.96")
    tally = compared(InTurn([listed(WAITING), listed(PLACED)]), InTurn(ours), None, asked, asked)
    assert set(tally.differing) == classes


def test_server_that_fleetlight_shows_waiting_for_ever_is_too_much_once_nova_has_placed_it() -> None:
    nova = InTurn([listed(WAITING), listed(PLACED), listed()])
    asked = Question(DETAILED, (("status", "BUILD"),), "2.96")
    tally = compared(nova, InTurn([listed(WAITING)]), None, asked, asked)
    assert set(tally.differing) == {"extra row"}


def test_server_that_nova_itself_shows_waiting_again_is_one_that_waits() -> None:
    """As in lists without a filter, while those with one show it in its cell already."""
    other = PLACED | {"id": "b"}
    nova = InTurn([listed(WAITING), listed(PLACED), listed(WAITING, other)])
    ours = InTurn([listed(WAITING), listed(PLACED), listed(other, WAITING)])
    asked = Question(DETAILED, (("name", "x"),), "2.96")
    assert set(compared(nova, ours, None, asked, asked, asked).differing) == set()


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_failure_of_both_is_unanswered_and_not_the_same(status: int) -> None:
    failed = Answer(status, {"computeFault": {"code": status}})
    tally = compared(InTurn([failed]), InTurn([failed]), None, QUESTIONS[0])
    assert (tally.asked, tally.unanswered, tally.same) == (1, 1, 0)


@pytest.mark.parametrize("status", [429, 502, 503])
def test_limit_or_proxy_that_answers_for_nova_is_no_difference(status: int) -> None:
    failed = Answer(status, {})
    tally = compared(InTurn([failed]), sound()[1], None, QUESTIONS[0])
    assert (tally.unanswered, tally.differing) == (1, {})


@pytest.mark.parametrize(("side", "unanswered"), [("nova", 5), ("fleetlight", 0)])
def test_comparison_ends_when_an_api_is_away(side: str, unanswered: int) -> None:
    nova, ours = sound()

    def none(_answer: Answer) -> Answer:
        return Answer(0, problem="it cannot be reached: no answer in time")

    apis: list[Asked] = [Faulty(nova.ask, none), ours] if side == "nova" else [nova, Faulty(ours.ask, none)]
    time = Time()
    comparison = Comparison(apis[0], apis[1], Tally(), SETTLE_S, lambda: None, clock=time.clock, pause=time.pause)
    comparison.run(endless(), most=None, for_s=None)
    assert comparison.away == side
    assert comparison.tally.unanswered == unanswered


def test_difference_settles_while_others_are_asked() -> None:
    nova, ours = sound()
    fault, _ = PLANTED["a value is changed"]
    time = Time()
    tally = compared(nova, Faulty(ours.ask, fault), time, *(QUESTIONS[0] for _ in range(30)))
    assert tally.differing["value of name"].requests == 30
    assert time.now_s < 2 * SETTLE_S


def test_what_is_answered_by_no_json_differs_from_what_is() -> None:
    question = QUESTIONS[0]
    whole: Any = {"servers": []}
    others: list[Any] = [None, [], "text"]
    for other in others:
        case = Case(question, SETTLE_S)
        one, two = Answer(200, whole), Answer(200, other)
        assert [each.class_ for each in case.unexplained(one, two)] == ["value of body"]
        assert [each.class_ for each in case.unexplained(two, one)] == ["value of body"]
        assert case.unexplained(two, two) == []
        case.judge(Round(one, two, one), 0.0)
        assert case.due_s is not None


def test_nova_is_asked_for_the_marker_of_a_sorted_page_that_differs() -> None:
    question = Question(DETAILED, (("sort_key", "task_state"), ("marker", "m")), "2.96")
    nova = InTurn([listed(PLACED), Answer(200, {"server": {"id": "m", "OS-EXT-STS:task_state": None}})])
    tally = compared(nova, InTurn([listed()]), None, question)
    assert (tally.differing, set(tally.explained)) == ({}, {"sorted-nulls"})

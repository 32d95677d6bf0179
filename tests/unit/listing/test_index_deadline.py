"""Who asks an index that may hang, and what a heavy question costs the others."""

import asyncio

import pytest

from fleetlight.indexer.errors import IndexerError, IndexUnavailableError
from fleetlight.listing.index_gateway import IndexDeadline
from fleetlight.listing.progress_cache import IndexSlowError
from fleetlight.resources.fields import Record
from tests.unit.listing.test_progress_cache import Advancing

LATE = IndexUnavailableError("no answer within 5 s")


class Answering(Advancing):
    """An index that answers what is asked for a uuid when `answer` or `fail` says so, and all else at once."""

    def __init__(self) -> None:
        super().__init__()
        self.asked_for: dict[str, asyncio.Future[Record | None]] = {}

    async def find(self, uuid: str) -> Record | None:
        self.asked_for[uuid] = asyncio.get_running_loop().create_future()
        return await self.asked_for[uuid]

    def answer(self, uuid: str) -> None:
        self.asked_for[uuid].set_result(None)

    def fail(self, uuid: str) -> None:
        self.asked_for[uuid].set_exception(LATE)


class Stage:
    def __init__(self) -> None:
        self.index = Answering()
        self.failures: list[IndexerError] = []
        self.deadline = IndexDeadline(0.01, self.failures.append)

    async def ask_in_vain(self, uuid: str, reason: str | None = None) -> None:
        with pytest.raises(IndexSlowError, match=reason):
            await self.deadline.run(self.index.find(uuid))

    async def let_it_end(self) -> None:
        for _ in range(3):
            await asyncio.sleep(0)


async def test_others_are_answered_while_one_question_is_overdue() -> None:
    stage = Stage()
    await stage.ask_in_vain("heavy")
    for _ in range(2):
        assert await stage.deadline.run(stage.index.progress())


async def test_one_at_a_time_tries_an_index_that_may_hang() -> None:
    stage = Stage()
    await stage.ask_in_vain("first", "no answer within 0.01 s")
    trying = asyncio.ensure_future(stage.ask_in_vain("second"))
    await stage.let_it_end()
    await stage.ask_in_vain("third", "earlier queries still wait")
    assert set(stage.index.asked_for) == {"first", "second"}, "a third one has waited too"
    await trying
    await stage.ask_in_vain("fourth")
    assert set(stage.index.asked_for) == {"first", "second", "fourth"}


async def test_heavy_question_that_fails_in_the_end_takes_the_index_from_nobody() -> None:
    stage = Stage()
    await stage.ask_in_vain("heavy")
    assert await stage.deadline.run(stage.index.progress())
    stage.index.fail("heavy")
    await stage.let_it_end()
    assert stage.failures == []


async def test_index_that_answers_nobody_has_failed() -> None:
    stage = Stage()
    assert await stage.deadline.run(stage.index.progress())
    await stage.ask_in_vain("heavy")
    stage.index.fail("heavy")
    await stage.let_it_end()
    assert stage.failures == [LATE]


async def test_late_answer_shows_that_the_index_works() -> None:
    stage = Stage()
    await stage.ask_in_vain("first")
    await stage.ask_in_vain("second")
    stage.index.answer("second")
    await stage.let_it_end()
    await asyncio.gather(stage.ask_in_vain("a"), stage.ask_in_vain("b"))
    assert {"a", "b"} <= set(stage.index.asked_for), "the first question is what is slow"
    stage.index.answer("a")
    stage.index.answer("b")
    await stage.let_it_end()
    stage.index.fail("first")
    await stage.let_it_end()
    assert stage.failures == []
    await asyncio.gather(stage.ask_in_vain("third"), stage.ask_in_vain("fourth"))
    assert {"third", "fourth"} <= set(stage.index.asked_for), "nothing is overdue any more"


async def test_questions_that_share_an_index_which_answers_may_take_as_many_times_as_long() -> None:
    stage = Stage()
    first = asyncio.ensure_future(stage.ask_in_vain("a", r"no answer within 0\.03 s"))
    others = [asyncio.ensure_future(stage.deadline.run(stage.index.find(uuid))) for uuid in "bc"]
    await stage.let_it_end()
    stage.deadline.note_answer()
    await first
    await asyncio.gather(*others, return_exceptions=True)


async def test_questions_that_share_an_index_which_is_silent_wait_for_it_once() -> None:
    stage = Stage()
    asked = [asyncio.ensure_future(stage.ask_in_vain(uuid, "no answer within 0.01 s")) for uuid in "abc"]
    await asyncio.gather(*asked)

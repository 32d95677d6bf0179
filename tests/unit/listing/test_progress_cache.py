"""How far the index follows is remembered for a moment, and read again beside the requests."""

import asyncio
import threading
import time
from collections.abc import Mapping
from dataclasses import replace

import pytest

from fleetlight.indexer.backends.base import CellProgress
from fleetlight.indexer.errors import IndexAbsentError, IndexUnavailableError
from fleetlight.listing import progress_cache as progress
from fleetlight.listing.progress_cache import IndexSlowError, ProgressCache
from tests.support.played.played_listing import PlayedSearcher
from tests.support.waiting import wait_until

FIRST = CellProgress("c0", watermark=1, fresh_as_of=0, is_complete=True)


class Advancing(PlayedSearcher):
    """An index whose watermark is higher each time somebody asks, until it fails."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_away = self.is_absent = False

    async def progress(self) -> Mapping[str, CellProgress]:
        if self.is_absent:
            raise IndexAbsentError("not there")
        if self.is_away:
            raise IndexUnavailableError("away")
        self.asked += 1
        return {"c0": replace(FIRST, watermark=self.asked)}


async def test_index_that_was_never_there_has_not_failed() -> None:
    index = Advancing()

    cache = ProgressCache(index.progress, 60)
    assert not cache.is_absent, "nobody has looked"
    index.is_absent = True
    assert await cache.get(0) == {}
    assert cache.is_absent
    index.is_absent = False
    assert (await cache.get(0))["c0"].watermark == 1
    assert not cache.is_absent
    index.is_absent = True
    with pytest.raises(IndexAbsentError):
        await cache.get(0)
    assert not cache.is_absent, "it was there, so it is lost"


async def test_request_takes_what_is_remembered() -> None:
    index = Advancing()
    cache = ProgressCache(index.progress, 60)
    assert [(await cache.get(max_age_s=3600))["c0"].watermark for _ in range(3)] == [1, 1, 1]


async def test_request_that_wants_it_newer_waits_for_it() -> None:
    index = Advancing()
    cache = ProgressCache(index.progress, 60)
    assert [(await cache.get(max_age_s=-1))["c0"].watermark for _ in range(3)] == [1, 2, 3]


async def test_it_is_read_again_and_again_while_requests_come_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_INTERVAL_S", 0.01)
    monkeypatch.setattr(progress, "_IDLE_AFTER_S", 0.2)
    index = Advancing()
    others = {*threading.enumerate()}
    cache = ProgressCache(index.progress, 60)
    await cache.get()
    readers = [each for each in threading.enumerate() if each.name == "index-progress" and each not in others]
    assert len(readers) == 1
    await asyncio.to_thread(readers[0].join)
    assert index.asked > 3
    asked = index.asked
    assert (await cache.get(max_age_s=0))["c0"].watermark == asked + 1
    cache.close()


async def test_it_is_read_while_the_loop_of_the_lists_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_INTERVAL_S", 0.01)
    index = Advancing()
    cache = ProgressCache(index.progress, 60)
    await cache.get()
    wait_until(lambda: index.asked > 3)  # which blocks this loop
    cache.close()


class Late(Advancing):
    """An index that answers once, and then no more before it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = threading.Event()

    async def progress(self) -> Mapping[str, CellProgress]:
        answer = await super().progress()
        if self.asked > 1:
            await asyncio.to_thread(self.goes_on.wait, 60)
        return answer


async def test_request_takes_what_is_remembered_when_the_reader_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    index = Late()
    cache = ProgressCache(index.progress, 60)
    assert (await cache.get())["c0"].watermark == 1
    assert (await cache.get(max_age_s=0, timeout_s=0.01))["c0"].watermark == 1
    monkeypatch.setattr(progress, "_LATE_MAX_AGE_S", 0.0)
    waiting = asyncio.create_task(cache.get(max_age_s=0))
    await asyncio.sleep(0.02)
    assert not waiting.done(), "what is remembered is too old"
    index.goes_on.set()
    assert (await waiting)["c0"].watermark > 1
    cache.close()


async def test_index_that_does_not_answer_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_LATE_MAX_AGE_S", -1.0)
    index = Late()
    index.asked = 1
    cache = ProgressCache(index.progress, 0.2)

    async def seconds_of_get() -> float:
        began = time.monotonic()
        with pytest.raises(IndexSlowError):
            await cache.get()
        return time.monotonic() - began

    assert await seconds_of_get() > 0.1
    # The reading may have begun a moment after the request that is the first to wait for it.
    async with asyncio.timeout(30):
        while await seconds_of_get() > 0.1:
            pass
    index.goes_on.set()
    cache.close()


async def test_index_that_failed_and_does_not_answer_the_next_reading_in_time_has_failed() -> None:
    index = Late()
    cache = ProgressCache(index.progress, 0.05)
    index.is_away = True
    with pytest.raises(IndexUnavailableError, match="away"):
        await cache.get()
    index.is_away, index.asked = False, 1
    failures: list[str] = []
    async with asyncio.timeout(20):
        while "away" not in failures:
            with pytest.raises(IndexUnavailableError) as caught:
                await cache.get()
            failures.append(str(caught.value))
    assert failures[0] == "its progress was not read within 0.05 s"
    index.goes_on.set()
    cache.close()


async def test_reading_that_is_late_long_after_one_that_failed_has_not_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_IDLE_AFTER_S", 0.1)
    index = Late()
    cache = ProgressCache(index.progress, 0.05)
    index.is_away = True
    with pytest.raises(IndexUnavailableError, match="away"):
        await cache.get()
    await asyncio.to_thread(wait_until, lambda: not cache._has_thread)
    index.is_away, index.asked = False, 1
    for _ in range(5):
        with pytest.raises(IndexSlowError):
            await cache.get()
    index.goes_on.set()
    cache.close()


async def test_request_that_ends_takes_the_reading_from_nobody_else() -> None:
    index = Late()
    index.asked = 1
    cache = ProgressCache(index.progress, 60)
    gone, waiting = (asyncio.create_task(cache.get()) for _ in range(2))
    await asyncio.sleep(0.01)
    gone.cancel()
    index.goes_on.set()
    assert (await waiting)["c0"].watermark == 2
    cache.close()


async def test_request_that_comes_behind_the_end_is_answered_and_waits_for_no_deadline() -> None:
    """As one does that is under way while its process ends."""
    cache = ProgressCache(Advancing().progress, 60)
    for watermark in (1, 2):
        cache.close()
        async with asyncio.timeout(20):
            assert (await cache.get(0))["c0"].watermark == watermark


async def test_next_request_meets_a_failure_and_the_one_behind_it_asks_anew() -> None:
    index = Advancing()
    cache = ProgressCache(index.progress, 60)
    await cache.get()
    index.is_away = True
    with pytest.raises(IndexUnavailableError):
        await cache.get(max_age_s=0)
    index.is_away = False
    assert (await cache.get())["c0"].watermark == 2
    cache.close()

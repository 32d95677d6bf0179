"""How far the index follows is remembered for a moment, and read again beside the requests."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import pytest

from indexer.backends.base import CellProgress, FoundPage, FoundRow
from indexer.errors import IndexAbsentError, IndexUnavailableError
from listing import progress_cache as progress
from listing.progress_cache import ProgressCache
from query.counts import CountRequest, Counts
from query.page import PageRequest
from views.projection import Projection

FIRST = CellProgress("c0", watermark=1, fresh_as_of=0, is_complete=True)


class Advancing:
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

    async def search(self, request: PageRequest, cells: Collection[str], projection: Projection) -> Sequence[FoundRow]:
        raise NotImplementedError

    async def page(self, request: PageRequest, cells: Collection[str], projection: Projection) -> FoundPage:
        raise NotImplementedError

    async def count(self, request: CountRequest, cells: Collection[str]) -> Mapping[str, Counts]:
        raise NotImplementedError

    async def close(self) -> None: ...


async def beside(cache: ProgressCache) -> None:
    """Let what is read beside the requests end."""
    cache.read_again()
    for _ in range(5):
        await asyncio.sleep(0)


def test_index_that_was_never_there_has_not_failed() -> None:
    index = Advancing()

    async def ask() -> None:
        cache = ProgressCache(index.progress)
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

    asyncio.run(ask())


def test_request_takes_what_is_remembered() -> None:
    index = Advancing()

    async def ask() -> list[int]:
        cache = ProgressCache(index.progress)
        return [(await cache.get(max_age_s=3600))["c0"].watermark for _ in range(3)]

    assert asyncio.run(ask()) == [1, 1, 1]


def test_request_that_wants_it_newer_waits_for_it() -> None:
    index = Advancing()

    async def ask() -> list[int]:
        cache = ProgressCache(index.progress)
        return [(await cache.get(max_age_s=-1))["c0"].watermark for _ in range(3)]

    assert asyncio.run(ask()) == [1, 2, 3]


def test_it_is_read_again_beside_the_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_READ_AGAIN_AFTER_S", -1.0)
    index = Advancing()

    async def ask() -> int:
        cache = ProgressCache(index.progress)
        await cache.get(max_age_s=3600)
        await beside(cache)
        return (await cache.get(max_age_s=3600))["c0"].watermark

    assert asyncio.run(ask()) == 2


def test_lists_that_end_at_once_have_it_read_again_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_READ_AGAIN_AFTER_S", -1.0)
    index = Advancing()

    async def ask() -> None:
        cache = ProgressCache(index.progress)
        for _ in range(3):
            cache.read_again()
        await beside(cache)
        assert index.asked == 1
        await beside(cache)
        assert index.asked == 2

    asyncio.run(ask())


def test_what_was_just_read_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_READ_AGAIN_AFTER_S", 3600.0)
    index = Advancing()

    async def ask() -> None:
        cache = ProgressCache(index.progress)
        await cache.get(max_age_s=3600)
        await beside(cache)

    asyncio.run(ask())
    assert index.asked == 1


def test_next_request_meets_the_failure_of_what_was_read_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_READ_AGAIN_AFTER_S", -1.0)
    index = Advancing()

    async def ask() -> None:
        cache = ProgressCache(index.progress)
        await cache.get(max_age_s=3600)
        index.is_away = True
        await beside(cache)
        await cache.get(max_age_s=3600)

    with pytest.raises(IndexUnavailableError):
        asyncio.run(ask())

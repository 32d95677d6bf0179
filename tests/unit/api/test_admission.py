"""A few pages are made at once; others wait in order, callers in rounds, and those that cannot wait are refused."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from prometheus_client import generate_latest

from fleetlight.api.caller import Caller
from fleetlight.api.http.connection import UNKNOWN, ClientConnection
from fleetlight.api.http.errors import CallerLeftError, TooManyListsError
from fleetlight.api.limits.admission import ListAdmission, RequestAdmission
from fleetlight.api.limits.fair_queue import FairQueue
from fleetlight.api.metrics import ApiMetrics
from fleetlight.api.settings import ApiSettings
from fleetlight.listing.admission import NO_LIMIT, Admission, OneItem


def named(name: str) -> Caller:
    return Caller(name, "shop", frozenset({"member"}))


ADA, BOB = map(named, ("ada", "bob"))


class Pages:
    """Pages that are made until they are told to end. begun: their names, in the order in which they were begun."""

    def __init__(self, *, has_identity: bool = True, **settings: float) -> None:
        self.metrics = ApiMetrics()
        limits = {"max_lists": 1, "max_live_lists": 1, **settings}
        self.admission = ListAdmission(
            ApiSettings.model_validate(limits), self.metrics.list_queues, has_identity=has_identity
        )
        self.begun: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}

    async def start(
        self,
        name: str,
        caller: Caller = ADA,
        connection: ClientConnection = UNKNOWN,
        *,
        is_live: bool = False,
        is_small: bool = False,
        request: RequestAdmission | None = None,
    ) -> "asyncio.Task[None]":
        """A page that has begun, or waits, when this returns."""
        self._ends[name] = asyncio.Event()
        of_request = request or self.admission.of(caller, connection)

        async def make() -> None:
            await self._make(OneItem(of_request) if is_small else of_request, name, is_live=is_live)

        task = asyncio.create_task(make())
        await settled()
        return task

    async def _make(self, admission: Admission, name: str, *, is_live: bool) -> None:
        async with admission.page() as slot:
            if is_live:
                await slot.ask_cells()
            self.begun.append(name)
            await self._ends[name].wait()

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await settled()

    def metric(self, line: str) -> bool:
        """Whether a metric has this name, labels and value."""
        return any(line in generate_latest(registry).decode() for registry in self.metrics.registries)


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def scenario(run: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(30):
            await run()

    asyncio.run(main())


def test_pages_wait_in_order_and_callers_in_rounds() -> None:
    async def run() -> None:
        pages = Pages()
        tasks = [await pages.start(name, ADA) for name in ("a1", "a2", "a3")]
        tasks.append(await pages.start("b1", BOB))
        assert pages.begun == ["a1"]
        assert pages.metric('fleetlight_lists_waiting{queue="lists"} 3.0')
        assert pages.metric('fleetlight_lists_in_the_making{queue="lists"} 1.0')
        for name in ("a1", "a2", "b1", "a3"):
            await pages.end(name)
        await asyncio.gather(*tasks)
        assert pages.begun == ["a1", "a2", "b1", "a3"]
        assert pages.metric('fleetlight_list_wait_seconds_count{queue="lists"} 4.0')
        assert pages.metric('fleetlight_lists_in_the_making{queue="lists"} 0.0')

    scenario(run)


def test_one_caller_has_a_quarter_of_the_queue_and_the_rest_is_for_others() -> None:
    async def run() -> None:
        pages = Pages(max_waiting_lists=4)
        tasks = [await pages.start(name, ADA) for name in ("a1", "a2")]
        with pytest.raises(TooManyListsError) as refusal:
            await (await pages.start("a3", ADA))
        assert refusal.value.headers == {"Retry-After": "2"}
        tasks.append(await pages.start("b1", BOB))
        assert pages.metric('fleetlight_lists_refused_total{queue="lists",reason="own"} 1.0')
        for name in ("a1", "a2", "b1"):
            await pages.end(name)
        await asyncio.gather(*tasks)

    scenario(run)


def test_callers_that_fill_the_queue_give_way_to_one_that_waits_for_less() -> None:
    async def run() -> None:
        pages = Pages(max_waiting_lists=8)
        made = await pages.start("made")
        flood = [await pages.start(f"{name}{number}", named(name)) for name in "cdef" for number in (1, 2)]
        small = [await pages.start(f"{name}1", named(name)) for name in "gh"]
        for given_way in (flood[1], flood[3]):
            with pytest.raises(TooManyListsError, match="You wait"):
                await given_way
        assert pages.metric('fleetlight_lists_waiting{queue="lists"} 8.0')
        # One of each flow waits now, or two, of which none gives way to a second one of another caller.
        with pytest.raises(TooManyListsError):
            await (await pages.start("g2", named("g")))
        for name in ("made", "c1", "d1", "e1", "f1", "g1", "h1", "e2", "f2"):
            await pages.end(name)
        await asyncio.gather(made, *small, *(flood[number] for number in (0, 2, 4, 5, 6, 7)))
        assert pages.begun == ["made", "c1", "d1", "e1", "f1", "g1", "h1", "e2", "f2"]
        assert pages.metric('fleetlight_lists_in_the_making{queue="lists"} 0.0')

    scenario(run)


def test_page_that_goes_on_gives_way_to_nobody() -> None:
    async def run() -> None:
        pages = Pages(max_waiting_lists=8, list_wait_s=0.05)
        streamed = pages.admission.of(ADA)
        first = await pages.start("first", request=streamed)
        await pages.end("first")
        await first
        made = await pages.start("made", BOB)
        going_on = [await pages.start(f"next{number}", request=streamed) for number in range(8)]
        with pytest.raises(TooManyListsError, match="Too many lists are"):
            await (await pages.start("b1", BOB))
        for name in ("made", *(f"next{number}" for number in range(8))):
            await pages.end(name)
        await asyncio.gather(made, *going_on)

    scenario(run)


def test_request_that_is_cancelled_as_it_gives_way_gives_back_no_place() -> None:
    async def run() -> None:
        queue = FairQueue(1, most_waiting=2, most_in_flow=2, refusal=LookupError)
        await queue.acquire("made")
        flood = [asyncio.create_task(queue.acquire("flood")) for _ in range(2)]
        await settled()
        small = asyncio.create_task(queue.acquire("small"))
        # Until that one waits, and before the other one knows that it gave way.
        await asyncio.sleep(0)
        flood[1].cancel()
        await settled()
        assert (queue.served, queue.waiting, small.done()) == (1, 2, False)
        for task in (flood[0], small):
            queue.release()
            await task
        queue.release()
        assert (queue.served, queue.waiting) == (0, 0)

    scenario(run)


def test_full_queue_refuses_every_caller_at_once() -> None:
    async def run() -> None:
        pages = Pages(max_waiting_lists=0)
        made = await pages.start("a1", ADA)
        with pytest.raises(TooManyListsError):
            await (await pages.start("b1", BOB))
        assert pages.metric('fleetlight_lists_refused_total{queue="lists",reason="full"} 1.0')
        await pages.end("a1")
        await made

    scenario(run)


def test_page_that_waits_for_too_long_is_refused_and_leaves_its_place_in_the_queue() -> None:
    async def run() -> None:
        pages = Pages(list_wait_s=0.001)
        made = await pages.start("a1")
        late = await pages.start("a2")
        with pytest.raises(TooManyListsError):
            await late
        assert pages.metric('fleetlight_lists_refused_total{queue="lists",reason="late"} 1.0')
        assert pages.metric('fleetlight_lists_waiting{queue="lists"} 0.0')
        await pages.end("a1")
        await made
        assert pages.begun == ["a1"]

    scenario(run)


def test_page_that_asks_cells_waits_in_a_queue_of_its_own_and_keeps_no_other_from_being_made() -> None:
    async def run() -> None:
        pages = Pages()
        tasks = [await pages.start(name, is_live=True) for name in ("live1", "live2")]
        tasks.append(await pages.start("index"))
        assert pages.begun == ["live1", "index"]
        assert pages.metric('fleetlight_lists_waiting{queue="live"} 1.0')
        for name in ("live1", "live2", "index"):
            await pages.end(name)
        await asyncio.gather(*tasks)

    scenario(run)


def test_tasks_of_a_page_that_ask_cells_at_once_have_one_place() -> None:
    async def run() -> None:
        pages = Pages()
        busy = await pages.start("busy", is_live=True)

        async def ask_twice() -> None:
            async with pages.admission.of(BOB).page() as slot:
                await asyncio.gather(slot.ask_cells(), slot.ask_cells())

        asking = asyncio.create_task(ask_twice())
        await settled()
        assert pages.metric('fleetlight_lists_waiting{queue="live"} 1.0')
        await pages.end("busy")
        await asyncio.gather(busy, asking)
        assert pages.metric('fleetlight_lists_in_the_making{queue="live"} 0.0')

    scenario(run)


def test_page_inside_of_another_has_its_slot() -> None:
    async def run() -> None:
        pages = Pages(max_waiting_lists=0)
        admission = pages.admission.of(ADA)
        async with admission.page() as outer:
            async with admission.page() as inner:
                assert inner is outer
            assert pages.metric('fleetlight_lists_in_the_making{queue="lists"} 1.0')
        assert pages.metric('fleetlight_lists_in_the_making{queue="lists"} 0.0')

    scenario(run)


def test_tasks_of_a_request_that_begin_pages_at_once_share_a_slot() -> None:
    async def run() -> None:
        pages = Pages()
        busy = await pages.start("busy", BOB)
        request = pages.admission.of(ADA)
        tasks = [await pages.start(name, request=request) for name in ("first", "second")]
        assert pages.metric('fleetlight_lists_waiting{queue="lists"} 1.0')
        await pages.end("busy")
        assert pages.begun == ["busy", "first", "second"]
        await pages.end("first")
        assert pages.metric('fleetlight_lists_in_the_making{queue="lists"} 1.0')
        await pages.end("second")
        await asyncio.gather(busy, *tasks)
        assert pages.metric('fleetlight_lists_in_the_making{queue="lists"} 0.0')

    scenario(run)


def test_task_that_waits_for_cells_of_a_page_that_was_left_keeps_no_place() -> None:
    async def run() -> None:
        pages = Pages()
        busy = await pages.start("busy", is_live=True)
        left_behind: list[asyncio.Task[None]] = []

        async def fail() -> None:
            async with pages.admission.of(BOB).page() as slot:
                left_behind.append(asyncio.create_task(slot.ask_cells()))
                await settled()
                raise LookupError

        with pytest.raises(LookupError):
            await asyncio.create_task(fail())
        await pages.end("busy")
        await asyncio.gather(busy, *left_behind)
        assert pages.metric('fleetlight_lists_in_the_making{queue="live"} 0.0')

    scenario(run)


def test_small_page_waits_for_nobody_unless_it_asks_cells() -> None:
    async def run() -> None:
        pages = Pages()
        tasks = [await pages.start("large"), await pages.start("live", is_live=True)]
        tasks.append(await pages.start("small", is_small=True))
        assert pages.begun == ["large", "small"]
        for name in ("large", "small", "live"):
            await pages.end(name)
        await asyncio.gather(*tasks)

    scenario(run)


def test_what_a_request_has_begun_is_not_refused_later() -> None:
    async def run() -> None:
        pages = Pages(max_waiting_lists=0)
        streamed = pages.admission.of(ADA)
        first = await pages.start("first", request=streamed)
        await pages.end("first")
        await first
        other = await pages.start("other", BOB)
        second = await pages.start("second", request=streamed)
        assert pages.begun == ["first", "other"]
        for name in ("other", "second"):
            await pages.end(name)
        await asyncio.gather(other, second)
        assert pages.begun == ["first", "other", "second"]

    scenario(run)


def test_caller_that_leaves_while_it_waits_gives_its_place_up() -> None:
    async def run() -> None:
        pages = Pages()
        gone = asyncio.Event()

        async def left() -> None:
            await gone.wait()

        made = await pages.start("a1")
        waits = await pages.start("a2", connection=ClientConnection("192.0.2.1", left))
        gone.set()
        with pytest.raises(CallerLeftError):
            await waits
        await pages.end("a1")
        await made
        assert pages.begun == ["a1"]

    scenario(run)


def test_callers_without_identity_are_told_apart_by_their_addresses() -> None:
    async def run() -> None:
        pages = Pages(has_identity=False, max_waiting_lists=4)
        home, away = ClientConnection("192.0.2.1"), ClientConnection("192.0.2.2")
        tasks = [await pages.start(name, ADA, home) for name in ("h1", "h2")]
        with pytest.raises(TooManyListsError):
            await (await pages.start("h3", BOB, home))
        tasks.append(await pages.start("w1", ADA, away))
        for name in ("h1", "h2", "w1"):
            await pages.end(name)
        await asyncio.gather(*tasks)

    scenario(run)


def test_page_that_fails_gives_its_place_back() -> None:
    async def run() -> None:
        pages = Pages()

        async def fail() -> None:
            async with pages.admission.of(ADA).page():
                raise LookupError

        for _ in range(3):
            with pytest.raises(LookupError):
                await asyncio.create_task(fail())
        assert pages.metric('fleetlight_lists_in_the_making{queue="lists"} 0.0')

    scenario(run)


def test_where_nothing_is_said_there_is_no_limit() -> None:
    async def run() -> None:
        async with NO_LIMIT.page() as first, NO_LIMIT.page() as second:
            for slot in (first, second):
                await slot.ask_cells()

    scenario(run)

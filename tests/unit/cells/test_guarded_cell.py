"""When a cell counts as hanging, and when not. Cells here answer when their gate opens."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from fleetlight.cells.errors import CellHangsError, CellUnreachableError
from fleetlight.cells.fan_out.guarded_cell import GuardedCell
from tests.support.waiting import eventually

AT_ONCE_S = 0.01
LONG_S = 3600


class Gates:
    """Questions that hang until they are let go."""

    def __init__(self) -> None:
        self._gates: list[threading.Event] = []
        self.is_up = True
        self.probes = self.asked = 0

    def question(self) -> tuple[Callable[[], str], threading.Event]:
        gate = threading.Event()
        self._gates.append(gate)

        def ask() -> str:
            self.asked += 1
            gate.wait(60)
            return "late"

        return ask, gate

    def probe(self) -> None:
        self.probes += 1
        if not self.is_up:
            raise CellUnreachableError("one", "still away")

    def open_all(self) -> None:
        for gate in self._gates:
            gate.set()


@pytest.fixture
def gates() -> Iterator[Gates]:
    gates = Gates()
    yield gates
    gates.open_all()


def guarded(gates: Gates, *, deadline_s: float, threads: int = 3) -> GuardedCell:
    return GuardedCell("one", gates.probe, threads=threads, deadline_s=deadline_s, probe_interval_s=0.01)


def now() -> str:
    return "now"


async def until_it_answers(cell: GuardedCell) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                assert await cell.ask(now, 60) == "now"
            except CellUnreachableError:
                await asyncio.sleep(0.001)
            else:
                return


async def test_who_waits_already_waits_no_longer_once_the_cell_is_found_hanging(gates: Gates) -> None:
    gates.is_up = False
    cell = guarded(gates, deadline_s=0.1)
    patient = asyncio.create_task(cell.ask(gates.question()[0], LONG_S))
    with pytest.raises(CellUnreachableError, match="no answer within"):
        await cell.ask(gates.question()[0], 0.1)
    async with asyncio.timeout(60):
        with pytest.raises(CellHangsError):
            await patient
    cell.close()


async def test_caller_in_a_hurry_does_not_make_the_cell_hang_for_others(gates: Gates) -> None:
    cell = guarded(gates, deadline_s=LONG_S)
    slow, gate = gates.question()
    with pytest.raises(CellUnreachableError, match="no answer within"):
        await cell.ask(slow, AT_ONCE_S)
    assert not cell.hangs
    assert await cell.ask(now, 60) == "now"
    gate.set()
    cell.close()


async def test_cell_hangs_when_callers_in_a_hurry_were_all_that_asked_and_none_was_answered(gates: Gates) -> None:
    gates.is_up = False
    cell = guarded(gates, deadline_s=0.1)
    slow, _ = gates.question()
    with pytest.raises(CellUnreachableError, match="no answer within"):
        await cell.ask(slow, AT_ONCE_S)
    await eventually(lambda: cell.hangs)
    cell.close()


async def test_heavy_question_does_not_make_a_cell_hang_that_answers_others(gates: Gates) -> None:
    cell = guarded(gates, deadline_s=0.5)
    heavy, _ = gates.question()
    asking = asyncio.ensure_future(cell.ask(heavy, 0.5))
    await eventually(lambda: gates.asked)
    assert await cell.ask(now, 60) == "now"
    with pytest.raises(CellUnreachableError, match="no answer within"):
        await asking
    assert not cell.hangs
    cell.close()


async def test_heavy_question_alone_does_not_make_a_cell_hang_that_answers_a_probe(gates: Gates) -> None:
    """Also while heavy ones hold all of its threads, and others who wait go on to wait."""

    cell = guarded(gates, deadline_s=0.5)
    patient, gate = gates.question()
    waiting = asyncio.create_task(cell.ask(patient, LONG_S))
    heavy = [cell.ask(gates.question()[0], 0.5) for _ in range(2)]
    for failure in await asyncio.gather(*heavy, return_exceptions=True):
        assert isinstance(failure, CellUnreachableError)
        assert failure.reason == "no answer within 0.5 s"
    await eventually(lambda: gates.probes)
    gate.set()
    assert await waiting == "late"
    assert not cell.hangs
    cell.close()


async def test_slow_failure_of_one_question_does_not_make_a_cell_hang_that_answers_a_probe(gates: Gates) -> None:
    def fail_slowly() -> str:
        threading.Event().wait(0.6)
        raise CellUnreachableError("one", "no answer in time")

    cell = guarded(gates, deadline_s=LONG_S)
    with pytest.raises(CellUnreachableError, match="no answer in time"):
        await cell.ask(fail_slowly, 60)
    assert await cell.ask(now, 60) == "now"
    await eventually(lambda: gates.probes)
    assert await cell.ask(now, 60) == "now"
    assert not cell.hangs
    cell.close()


async def test_failure_that_was_waited_for_is_not_waited_for_again(gates: Gates) -> None:
    def fail_slowly() -> str:
        threading.Event().wait(0.6)
        raise CellUnreachableError("one", "connection timed out")

    gates.is_up = False
    cell = guarded(gates, deadline_s=LONG_S)
    with pytest.raises(CellUnreachableError, match="connection timed out"):
        await cell.ask(fail_slowly, 60)
    await eventually(lambda: cell.hangs)
    with pytest.raises(CellUnreachableError, match="connection timed out; it is probed"):
        await cell.ask(now, 60)
    gates.is_up = True
    await eventually(lambda: not cell.hangs)
    assert await cell.ask(now, 60) == "now"
    cell.close()


async def test_failure_that_came_at_once_is_met_again(gates: Gates) -> None:
    def refuse() -> str:
        raise CellUnreachableError("one", "connection refused")

    cell = guarded(gates, deadline_s=LONG_S)
    for _ in range(3):
        with pytest.raises(CellUnreachableError) as failure:
            await cell.ask(refuse, 60)
        assert failure.value.reason == "connection refused"
    assert gates.probes == 0
    cell.close()


def test_change_of_a_cell_that_hangs_is_refused_before_it_is_made(gates: Gates) -> None:
    changed: list[float] = []

    async def scenario() -> None:
        gates.is_up = False
        cell = guarded(gates, deadline_s=AT_ONCE_S)
        await cell.act(lambda: changed.append(time.monotonic()))
        with pytest.raises(CellUnreachableError, match="no answer within"):
            await cell.ask(gates.question()[0], AT_ONCE_S)
        await eventually(lambda: cell.hangs)
        with pytest.raises(CellUnreachableError):
            await cell.act(lambda: changed.append(time.monotonic()))
        cell.close()

    asyncio.run(scenario())
    assert len(changed) == 1


async def test_what_a_change_uses_is_closed_behind_it(gates: Gates) -> None:
    closed: list[str] = []

    cell = guarded(gates, deadline_s=LONG_S)
    change, gate = gates.question()
    changing = asyncio.create_task(cell.act(change))
    await eventually(lambda: gates.asked == 1)
    cell.close(lambda: closed.append("after the change"))
    assert closed == []
    gate.set()
    assert await changing == "late"
    await eventually(lambda: closed == ["after the change"])


async def test_cell_whose_threads_are_all_held_is_used_again_when_one_is_let_go(gates: Gates) -> None:
    # Long enough for a thread to begin with the question: one that missed its deadline before is never asked.
    cell = guarded(gates, deadline_s=0.5, threads=1)
    heavy, gate = gates.question()
    with pytest.raises(CellUnreachableError, match="no answer within"):
        await cell.ask(heavy, 0.5)
    await eventually(lambda: gates.probes)
    with pytest.raises(CellUnreachableError, match="earlier questions still wait"):
        await cell.ask(now, 60)
    gate.set()
    await until_it_answers(cell)
    cell.close()


async def test_cell_that_was_closed_is_not_probed_for_a_question_that_is_late(gates: Gates) -> None:
    before = asyncio.all_tasks()
    cell = guarded(gates, deadline_s=0.3)
    for patience_s in (0.3, 0.2):
        late = asyncio.create_task(cell.ask(gates.question()[0], patience_s))
        await eventually(lambda: gates.asked > 0)
        cell.close()
        with pytest.raises(CellUnreachableError, match="no answer within"):
            await late
        assert not cell.hangs
        assert asyncio.all_tasks() == before
        cell = guarded(gates, deadline_s=0.3)
        gates.asked = 0
    cell.close()


async def test_probe_that_fails_as_nobody_expected_is_not_the_last_one(gates: Gates) -> None:
    failures = [RuntimeError("can't start new thread"), ValueError("odd")]

    def probe() -> None:
        if failures:
            raise failures.pop()

    cell = GuardedCell("one", probe, threads=1, deadline_s=AT_ONCE_S, probe_interval_s=0.01)
    ask, gate = gates.question()
    with pytest.raises(CellUnreachableError):
        await cell.ask(ask, AT_ONCE_S)
    gate.set()
    await eventually(lambda: not failures)
    await until_it_answers(cell)

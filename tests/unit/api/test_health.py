"""What a process asks to tell how it is."""

import asyncio
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from fleetlight.api.caller import Caller
from fleetlight.api.health import Health, HealthEndpoints
from fleetlight.api.http.errors import ForbiddenError
from fleetlight.api.maintenance import Maintenance
from fleetlight.api.metrics import ApiMetrics
from fleetlight.indexer.backends.base import CellProgress
from fleetlight.indexer.errors import IndexUnavailableError
from fleetlight.indexer.stream.liveness import ALIVE, Probe
from fleetlight.listing.index_gateway import IndexGateway
from fleetlight.listing.safe_connect import SafeConnect
from fleetlight.listing.settings import SearchSettings
from fleetlight.resources.clock import system_clock


class OneCell:
    """asked: how often the cell was."""

    def __init__(self) -> None:
        self.asked = 0

    async def cells(self) -> tuple[Any, ...]:
        return (SimpleNamespace(uuid="1", name="north"),)

    def hanging(self) -> frozenset[str]:
        return frozenset()

    async def find(self, *_: object) -> None:
        self.asked += 1
        await asyncio.sleep(0)


async def test_cells_are_asked_once_for_all_who_ask_at_once_whether_a_process_is_ready() -> None:
    cells = OneCell()
    index = IndexGateway(None, SearchSettings(enabled=False))
    health = Health(index, cast(Any, cells), ApiMetrics([CollectorRegistry()]))
    first = asyncio.create_task(health.readyz())
    answers = await asyncio.gather(*(health.readyz() for _ in range(20)))
    assert cells.asked == 1
    assert [answer.body["cells"] for answer in (*answers, await first)] == [{"north": "ok"}] * 21
    await health.readyz()
    assert cells.asked == 2


async def test_index_that_knows_its_progress_and_gives_no_instances_is_down() -> None:
    """As one whose index of instances was closed; no list has noticed yet."""

    class Closed:
        async def progress(self) -> dict[str, CellProgress]:
            return {"1": CellProgress("1", 1, system_clock(), is_complete=True)}

        async def search(self, *_: object) -> None:
            raise IndexUnavailableError("closed")

    registry = CollectorRegistry()
    index = IndexGateway(cast(Any, Closed()), SearchSettings(enabled=True))
    health = Health(index, cast(Any, OneCell()), ApiMetrics([registry]))
    assert (await health.readyz()).body["index"] == "down"
    assert index.why_not is not None
    index.close()


class PlayedCommand:
    """A command of several processes. asked: how often for its health, which is told once `may_answer` is set."""

    def __init__(self) -> None:
        self.asked = 0
        self.may_answer = Event()
        self.resets = 0

    def healthz(self) -> Probe:
        self.asked += 1
        self.may_answer.wait(10)
        return Probe(False, {"status": "stuck", "processes": {"api-1": "ok", "api-2": "stuck"}})

    def readyz(self) -> Probe:
        return ALIVE

    def reset_safe_connect(self) -> None:
        self.resets += 1


async def test_any_process_answers_for_all_of_its_command_in_one_word_and_asks_once_for_all_callers() -> None:
    index = IndexGateway(None, SearchSettings(enabled=False))
    command = PlayedCommand()
    endpoints = HealthEndpoints(Health(index, cast(Any, OneCell()), ApiMetrics([])), command)
    asking = [asyncio.create_task(endpoints.healthz(cast(Any, None))) for _ in range(20)]
    await asyncio.sleep(0)
    command.may_answer.set()
    answers = await asyncio.gather(*asking)
    assert {(answer.status_code, bytes(answer.body)) for answer in answers} == {(503, b'{"status":"stuck"}')}
    assert command.asked == 1
    assert (await endpoints.readyz(cast(Any, None))).body == b'{"status":"ok"}'


@pytest.mark.parametrize("role", ["admin", "member"])
async def test_the_index_is_used_again_in_all_processes_when_an_administrator_says_so(role: str) -> None:
    async def probe() -> None: ...

    flag, command = SafeConnect(probe), PlayedCommand()
    flag.trip(IndexUnavailableError("away"))
    request = SimpleNamespace(caller=Caller("ada", None, frozenset({role})))
    resetting = Maintenance(flag, command).reset_safe_connect(cast(Any, request))
    if role == "admin":
        assert (await resetting).status_code == 204
    else:
        with pytest.raises(ForbiddenError):
            await resetting
    assert (flag.is_tripped, command.resets) == ((False, 1) if role == "admin" else (True, 0))

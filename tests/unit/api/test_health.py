"""What a process asks to tell how it is."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from prometheus_client import CollectorRegistry

from api.health import Health
from api.metrics import ApiMetrics
from listing.index_gateway import IndexGateway
from listing.settings import SearchSettings


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


def test_cells_are_asked_once_for_all_who_ask_at_once_whether_a_process_is_ready() -> None:
    async def story() -> None:
        cells = OneCell()
        index = IndexGateway(None, SearchSettings(enabled=False))
        health = Health(index, cast(Any, cells), ApiMetrics([CollectorRegistry()]))
        first = asyncio.create_task(health.readyz())
        answers = await asyncio.gather(*(health.readyz() for _ in range(20)))
        assert cells.asked == 1
        assert [answer.body["cells"] for answer in (*answers, await first)] == [{"north": "ok"}] * 21
        await health.readyz()
        assert cells.asked == 2

    asyncio.run(story())

"""Assistants over a hundred thousand instances: whatever the size of the parts, none looks like the whole."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from bench.listing_http import api_process, fill
from fleetlight.indexer.backends.settings import IndexSettings

pytestmark = [pytest.mark.night, pytest.mark.no_rerun, pytest.mark.timeout(1200)]

COUNT, CELLS = 100_000, 8
EVERY = {"all_projects": True}


async def walked(connected: Client, limit: int) -> tuple[list[str], list[str]]:
    """The uuids of all parts, and the summary of each part."""
    uuids: list[str] = []
    summaries: list[str] = []
    marker: str | None = None
    while True:
        asked = {"fields": ["uuid"], "limit": limit, "marker": marker, **EVERY}
        found: Any = (await connected.call_tool("query", asked)).structured_content
        uuids += [row["uuid"] for row in found["data"]]
        summaries.append(found["summary"])
        assert found["complete"]
        if not found["has_more"]:
            return uuids, summaries
        marker = found["next"].partition('marker="')[2].rstrip('"')


def test_parts_of_a_hundred_thousand_say_so_and_make_the_whole(tmp_path: Path) -> None:
    index = tmp_path / "index.db"
    fill(tmp_path, IndexSettings(backend="sqlite", path=index), COUNT, CELLS)
    # The cells are empty: an index that is late on a busy machine must not be stood in for by them.
    settings = {
        "INDEX_BACKEND": "sqlite",
        "INDEX_PATH": str(index),
        "API_AUTH": "none",
        "SEARCH_INDEX_DEADLINE_S": "60",
    }

    async def scenario(url: str) -> None:
        async with (
            httpx2.AsyncClient(timeout=60) as http,
            Client(streamable_http_client(f"{url}/mcp", http_client=http)) as connected,
        ):
            counted: Any = (await connected.call_tool("count", EVERY)).structured_content
            assert counted["data"] == [{"by": {}, "count": COUNT}]
            by_cell: Any = (await connected.call_tool("count", {"by": "cell", **EVERY})).structured_content
            assert [group["count"] for group in by_cell["data"]] == [COUNT // CELLS] * CELLS
            uuids, summaries = await walked(connected, 1000)
            assert len(uuids) == len(set(uuids)) == COUNT
            assert all(each.startswith("ONLY A PART") for each in summaries[:-1])
            assert not any("This is everything" in each for each in summaries)
            too_many = await connected.call_tool("query", {"fields": ["uuid"], "limit": COUNT, **EVERY})
            assert too_many.is_error

    with api_process(tmp_path, settings) as (url, _):
        asyncio.run(scenario(url))

"""The webhooks of `scripts/bench feed`: how many events a second one deliverer brings to a local target.

The changes are there before it begins. The bare loop posts as many bodies of that size by the same library, without
signatures, order and state; the target is another process.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp

from bench.measure import Figure, at_least, figure
from fleetlight.api.settings import DeliverySettings
from fleetlight.delivery.run import MAX_REQUESTS
from tests.contract.compute_fleet import ComputeFleet, compute_fleet
from tests.support.deliveries import RunningDeliverer, delivering
from tests.support.waiting import wait_until

_CELL = "north"
_BATCH = 500
_BODY_BYTES = 500
_PATIENCE_S = 300
_ADMIN = {"X-User-Id": "root", "X-Roles": "admin", "X-Project-Id": "demo"}
_ATTEMPTS = "fleetlight_deliverer_attempts_total"


def run(directory: Path, count: int) -> Iterator[Figure]:
    """count: of events."""
    directory.mkdir()
    with compute_fleet(directory) as fleet, _target() as url:
        _subscribe(fleet, url)
        with delivering(fleet.fleet_url) as deliverer:
            wait_until(lambda: _delivered(deliverer) > 0)  # that it has begun
        _create(fleet, count)
        with delivering(fleet.fleet_url) as deliverer:
            wait_until(lambda: _delivered(deliverer) > 0)
            begin, before = time.perf_counter(), _delivered(deliverer)
            wait_until(lambda: _delivered(deliverer) >= count, timeout_s=_PATIENCE_S)
            rate = (_delivered(deliverer) - before) / (time.perf_counter() - begin)
        bare = count / asyncio.run(_post(url, count))
    what = f"events a second to one webhook, {count:,} events; a bare loop posts {bare:,.0f} a second"
    yield figure("feed.webhooks", rate, "1/s", what, runs=1, goal=at_least(1000))


@contextmanager
def _target() -> Iterator[str]:
    command = [sys.executable, "-m", "bench.feed_target"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as target:
        if target.stdout is None:
            raise RuntimeError("the target has no output")
        yield f"http://127.0.0.1:{target.stdout.readline().strip()}/"


def _subscribe(fleet: ComputeFleet, url: str) -> None:
    api = fleet.api(delivery=DeliverySettings(allowed_networks=("127.0.0.0/8",), allow_unencrypted=True))
    body = {"name": "bench", "url": url, "fields": ["name", "status"]}
    answer = api.request("POST", "/fleetlight/subscriptions", _ADMIN, json=body)
    answer.raise_for_status()


def _create(fleet: ComputeFleet, count: int) -> None:
    values = {"project_id": "demo", "user_id": "ada", "display_name": "server", "image_ref": ""}
    for _ in range(0, count, _BATCH):
        fleet.operations(_CELL).create_many([values] * _BATCH)
    fleet.number_changes()


def _delivered(deliverer: RunningDeliverer) -> float:
    return deliverer.metric(_ATTEMPTS, outcome="delivered") or 0


async def _post(url: str, count: int) -> float:
    """Returns seconds."""
    body = b"x" * _BODY_BYTES
    left = iter(range(count))

    async def post(session: aiohttp.ClientSession) -> None:
        for _ in left:
            async with session.post(url, data=body) as answer:
                await answer.read()

    begin = time.perf_counter()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(post(session) for _ in range(MAX_REQUESTS)))
    return time.perf_counter() - begin

"""The flag goes up once, warns once, and comes down only as it was told to."""

import asyncio

from structlog.testing import capture_logs

from fleetlight.indexer.errors import IndexUnavailableError
from fleetlight.listing.safe_connect import SafeConnect

GONE = IndexUnavailableError("connection refused")


class Probe:
    """Fails as often as it is told, then answers."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.calls = 0
        self.answered, self.failed_twice = asyncio.Event(), asyncio.Event()

    async def __call__(self) -> None:
        self.calls += 1
        if self.calls == 2:
            self.failed_twice.set()
        if self.calls <= self.failures:
            raise IndexUnavailableError(f"refused {self.calls} times")
        self.answered.set()


def test_flag_stays_up_and_warns_once() -> None:
    probe = Probe()
    flag = SafeConnect(probe)
    with capture_logs() as logs:
        flag.trip(GONE)
        flag.trip(IndexUnavailableError("a request that was under way"))
    assert flag.is_tripped
    assert flag.reason == "connection refused"
    assert [log["log_level"] for log in logs] == ["warning"]
    assert probe.calls == 0


def test_reset_takes_the_flag_down_and_the_next_failure_warns_again() -> None:
    flag = SafeConnect(Probe())
    flag.trip(GONE)
    flag.reset()
    assert not flag.is_tripped
    with capture_logs() as logs:
        flag.trip(GONE)
    assert [log["log_level"] for log in logs] == ["warning"]


def test_flag_expires_after_a_probe_that_succeeds() -> None:
    probe = Probe(failures=2)

    async def trip_and_wait() -> None:
        flag = SafeConnect(probe, retry_after_s=0.001)
        flag.trip(GONE)
        async with asyncio.timeout(10):
            await probe.answered.wait()
            await asyncio.sleep(0)
            assert not flag.is_tripped

    asyncio.run(trip_and_wait())
    assert probe.calls == 3


async def test_reason_is_what_the_last_probe_failed_with() -> None:
    probe = Probe(failures=1_000_000)

    flag = SafeConnect(probe, retry_after_s=0.001)
    flag.trip(GONE)
    assert flag.reason == "connection refused"
    async with asyncio.timeout(10):
        await probe.failed_twice.wait()
        await asyncio.sleep(0)
    assert flag.reason == "refused 2 times"
    flag.close()


async def test_closing_ends_the_probes() -> None:
    before = asyncio.all_tasks()
    flag = SafeConnect(Probe(failures=1_000_000), retry_after_s=0.001)
    flag.trip(GONE)
    flag.close()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before

"""Brokers as targets: events that wait at the same time are published together.

py-amqp blocks, so each broker has a thread of its own, and one that hangs does not hold up other targets.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

from fleetlight.api.subscriptions.events import Event
from fleetlight.cells.daemon_threads import DaemonThreads
from fleetlight.delivery.broker_link import BrokerLink
from fleetlight.delivery.outcomes import Away, Outcome

_TIMEOUT_S = 15.0
# Short enough to need no heartbeats, which would have to be sent even while the connection is idle.
_KEEP_ALIVE_S = 30.0
_LAST_WORD_S = 1.0


class Broker:
    """One target. timeout_s: how long the broker may take for events published together."""

    def __init__(self, link: BrokerLink, *, timeout_s: float = _TIMEOUT_S) -> None:
        self._link = link
        self._timeout_s = timeout_s
        self._threads = DaemonThreads(1, "broker")
        self._publishing = asyncio.Lock()
        self._waiting: dict[asyncio.Future[Outcome], Event] = {}
        self._idle: asyncio.TimerHandle | None = None

    async def send(self, event: Event) -> Outcome:
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting[answer] = event
        try:
            async with self._publishing:
                if not answer.done():
                    await self._publish_waiting()
            return answer.result()
        finally:
            del self._waiting[answer]

    async def close(self) -> None:
        self._stay_open()
        try:
            async with asyncio.timeout(_LAST_WORD_S):
                await self._threads.run(self._link.close)
        except TimeoutError:
            self._link.abort()
        self._threads.shutdown(wait=False)

    async def _publish_waiting(self) -> None:
        waiting = {answer: event for answer, event in self._waiting.items() if not answer.done()}
        self._stay_open()
        outcomes = await self._outcomes(list(waiting.values()))
        self._idle = asyncio.get_running_loop().call_later(_KEEP_ALIVE_S, self._threads.submit, self._link.close)
        for answer, outcome in zip(waiting, outcomes, strict=True):
            answer.set_result(outcome)

    async def _outcomes(self, events: Sequence[Event]) -> Sequence[Outcome]:
        publishing = self._threads.submit(partial(self._link.publish, events))
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.wrap_future(publishing)
        except TimeoutError:
            return [Away(f"no answer in {self._timeout_s:g} s")] * len(events)
        finally:
            if not publishing.done():
                self._link.abort()

    def _stay_open(self) -> None:
        if self._idle is not None:
            self._idle.cancel()

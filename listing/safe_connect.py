"""Safe connect: an index that failed is not asked again until the service restarts.

The request that met the failure is answered by the cells; one warning is logged. With `retry_after_s` the flag goes
down again after a probe in the background succeeded, never through a caller's request.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from fleetlight.cells.retrying import retrying_every
from fleetlight.indexer.errors import IndexerError
from fleetlight.resources.clock import system_clock

_log = structlog.get_logger(__name__)


class SafeConnect:
    """The flag.

    probe: asks the index something cheap; raises IndexerError while it is away.
    retry_after_s: wait before each probe; None: never probe.
    tripped_at: when the flag went up, in microseconds; None while it is down.
    reason: what the index failed with, while the flag is up; may name servers, so it is not for callers.
    """

    def __init__(self, probe: Callable[[], Awaitable[object]], retry_after_s: float | None = None) -> None:
        self._probe = probe
        self._retry_after_s = retry_after_s
        self.reason: str | None = None
        self.tripped_at: int | None = None
        self._probing: asyncio.Task[None] | None = None

    @property
    def is_tripped(self) -> bool:
        """Whether the index must not be used."""
        return self.reason is not None

    def trip(self, error: IndexerError) -> None:
        """Put the flag up. Further failures, of requests that were under way, change nothing."""
        if self.is_tripped:
            return
        self.reason = str(error)
        self.tripped_at = system_clock()
        _log.warning("index_unavailable", reason=self.reason, retry_after_s=self._retry_after_s)
        if self._retry_after_s is not None:
            self._probing = asyncio.create_task(self._probe_until_it_answers(self._retry_after_s))

    def reset(self) -> None:
        """Take the flag down, as a restart would."""
        self._stop_probing()
        if self.is_tripped:
            self.reason = self.tripped_at = None
            _log.info("index_in_use_again")

    def close(self) -> None:
        self._stop_probing()

    def _stop_probing(self) -> None:
        if self._probing is not None:
            self._probing.cancel()
            self._probing = None

    async def _probe_until_it_answers(self, wait_s: float) -> None:
        def note(error: IndexerError, _attempt: int, _wait_s: float) -> None:
            self.reason = str(error)

        await asyncio.sleep(wait_s)
        await retrying_every(wait_s, IndexerError, note)(self._probe)
        self._probing = None  # the task that ends here must not cancel itself
        self.reset()

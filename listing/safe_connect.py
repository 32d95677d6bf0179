"""Safe connect: after a failure, lists do not use the index until the service restarts.

The cells answer the request that met the failure, and one warning is logged. With `retry_after_s` a successful probe in
the background takes the flag down again; a caller's request never does.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from fleetlight.cells.retrying import retrying_every
from fleetlight.indexer.errors import IndexerError
from fleetlight.resources.clock import system_clock

_log = structlog.get_logger(__name__)


class SafeConnect:
    """The flag that keeps lists off a failed index.

    probe: sends the index a cheap query; raises IndexerError while it is away.
    retry_after_s: wait before each probe; None: never probe.
    tripped_at: when the flag went up, in microseconds; None while it is down.
    reason: the error of the index while the flag is up; may name servers, so callers must not see it.
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
        """Put the flag up. If it is up already, the failure of a concurrent request changes nothing."""
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
        """Stop probing; the flag stays as it is."""
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

"""A circuit breaker around one cell: if it hangs, callers wait for it once, and then not until it answers a probe.

A slow query alone does not count as hanging: it may be a heavy one, or its caller in a hurry. A cell is suspected if no
answer arrived for as long as one may take (`deadline_s`), or if it took long to fail; it hangs if it then does not
answer a probe either. A failure that comes at once, such as a refused connection, delays no caller, so each caller
queries the cell again.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import structlog

from fleetlight.cells.bounded_threads import AllThreadsHangError, BoundedThreads
from fleetlight.cells.daemon_threads import DaemonThreads
from fleetlight.cells.errors import CellHangsError, CellUnreachableError
from fleetlight.cells.retrying import retrying_every

T = TypeVar("T")

_log = structlog.get_logger(__name__)
_SLOW_FAILURE_S = 0.5
# Short, since callers wait for it, and a probe costs the cell next to nothing.
_FIRST_PROBE_S = 1.0
# A request has used up part of its time before it queries a cell.
_NEARLY_ALL = 0.8


class GuardedCell:
    """Runs queries and changes of one cell in a few threads of its own. Used in one event loop.

    name: of the cell. probe: a query that costs the cell next to nothing; raises CellUnreachableError.
    threads: number of queries at the same time, beside one probe; others wait, within their deadline.
    deadline_s: how long the cell may be silent. probe_interval_s: wait after a failed probe.
    """

    def __init__(
        self,
        name: str,
        probe: Callable[[], object],
        *,
        threads: int,
        deadline_s: float,
        probe_interval_s: float,
    ) -> None:
        self._name = name
        self._probe = probe
        self._deadline_s = deadline_s
        self._probe_interval_s = probe_interval_s
        self._threads = BoundedThreads(threads, f"cell-{name}", deadline_s=deadline_s)
        # A thread of their own, so that slow queries do not keep the cell from showing that it lives.
        self._for_probes = BoundedThreads(1, f"cell-{name}-probes", deadline_s=deadline_s)
        # Threads of their own, since changes may take any time, and must not keep queries from being made.
        self._changing = DaemonThreads(threads, f"cell-{name}-changes")
        self._answered_at = float("-inf")
        self._hangs_because: str | None = None
        self._probing: asyncio.Task[None] | None = None
        self._suspicion: asyncio.Task[None] | None = None
        self._waiting: set[asyncio.Timeout] = set()
        self._is_closed = False

    @property
    def hangs(self) -> bool:
        """Whether it counts as down, and is not queried, until it answers a probe."""
        return self._hangs_because is not None

    async def ask(self, question: Callable[[], T], timeout_s: float) -> T:
        """The result or error of `question`. Raises CellUnreachableError after `timeout_s`.

        It is raised at once if the cell hangs, and as soon as another caller finds that it does.
        """
        self._refuse_if_it_hangs()
        began = time.monotonic()
        try:
            async with asyncio.timeout(None) as waiting:
                self._waiting.add(waiting)
                try:
                    return await self._run(question, timeout_s)
                finally:
                    self._waiting.discard(waiting)
        except AllThreadsHangError:
            raise CellUnreachableError(self._name, "earlier questions still wait for an answer") from None
        except TimeoutError:
            if waiting.expired():
                raise CellHangsError(self._name, "others found that it hangs") from None
            reason = f"no answer within {timeout_s:g} s"
            left_s = self._deadline_s - timeout_s
            if timeout_s >= self._deadline_s * _NEARLY_ALL:
                self._suspect(began, reason)
            elif not self._is_closed and (self._suspicion is None or self._suspicion.done()):
                self._suspicion = asyncio.create_task(self._suspect_later(began, left_s))
            raise CellUnreachableError(self._name, reason) from None
        except CellUnreachableError as error:
            if time.monotonic() - began >= _SLOW_FAILURE_S:
                self._suspect(began, error.reason)
            raise

    async def act(self, change: Callable[[], T]) -> T:
        """The result or error of `change`, however late, since a change given up might still be made.

        Raises CellHangsError at once if the cell hangs; then nothing was changed.
        """
        self._refuse_if_it_hangs()
        return await self._changing.run(change)

    def close(self, last: Callable[[], object] = lambda: None) -> None:
        """Call `last` after all current queries and changes have ended, without waiting for them."""
        self._is_closed = True
        for task in (self._probing, self._suspicion):
            if task is not None:
                task.cancel()
        self._changing.shutdown(wait=False)

        def close_behind_changes() -> None:
            self._changing.shutdown(wait=True)
            last()

        self._threads.close(lambda: self._for_probes.close(close_behind_changes))

    def _refuse_if_it_hangs(self) -> None:
        if self._hangs_because is not None:
            raise CellHangsError(self._name, f"{self._hangs_because}; it is probed in the background")

    async def _run(self, question: Callable[[], T], timeout_s: float) -> T:
        def ask_and_note() -> T:
            answer = question()
            self._answered_at = time.monotonic()
            return answer

        return await self._threads.run(ask_and_note, timeout_s)

    async def _run_probe(self) -> None:
        await self._for_probes.run(
            self._probe, self._deadline_s if self.hangs else min(_FIRST_PROBE_S, self._deadline_s)
        )

    async def _suspect_later(self, began: float, left_s: float) -> None:
        await asyncio.sleep(left_s)
        self._suspect(began, f"no answer within {self._deadline_s:g} s")

    def _suspect(self, began: float, reason: str) -> None:
        is_probed = self._probing is not None and not self._probing.done()
        if self._answered_at < began and not is_probed and not self._is_closed:
            self._probing = asyncio.create_task(self._probe_until_it_answers(reason))

    async def _probe_until_it_answers(self, reason: str) -> None:
        # After any failure there is another probe, or else the cell would never be queried again.
        probing = retrying_every(self._probe_interval_s, Exception, partial(self._note_failed_probe, reason))
        await probing(self._run_probe)
        if self.hangs:
            self._hangs_because = None
            _log.info("cell_answers_again", cell=self._name)

    def _note_failed_probe(self, reason: str, error: object, _attempt: int, _wait_s: float) -> None:
        if not isinstance(error, AllThreadsHangError | CellUnreachableError | TimeoutError):
            _log.warning("cell_probe_failed", cell=self._name, reason=f"{type(error).__name__}: {error}")
        if not self.hangs:
            self._treat_as_hanging(reason)

    def _treat_as_hanging(self, reason: str) -> None:
        """Make no queries until a probe is answered."""
        self._hangs_because = reason
        _log.warning("cell_hangs", cell=self._name, reason=reason)
        now = asyncio.get_running_loop().time()
        for waiting in self._waiting:
            if not waiting.expired():
                waiting.reschedule(now)

"""Growing waits after failures of a target."""

import asyncio
import random
import time
from dataclasses import dataclass

_LONGEST_RETRY_AFTER_S = 3600.0


@dataclass(frozen=True, slots=True)
class Waits:
    """first_s: wait after the first failure, doubled by each further one up to most_s; a random half is taken off."""

    first_s: float = 1.0
    most_s: float = 300.0

    def after(self, failures: int) -> float:
        whole_s = min(self.most_s, self.first_s * 2.0 ** min(failures - 1, 32))
        return whole_s * random.uniform(0.5, 1)  # noqa: S311  # so that deliverers do not come back all at once


class Pace:
    """Whether a target accepts anything. While it does not, there is one attempt at a time, after a wait."""

    def __init__(self, waits: Waits) -> None:
        self._waits = waits
        self._failures = 0
        self._resumes_at = 0.0
        self.probing = asyncio.Lock()

    @property
    def is_away(self) -> bool:
        return self._failures > 0

    def worked(self) -> None:
        self._failures = 0

    def failed(self, began_at: float, retry_after_s: float | None) -> None:
        """began_at: start of the attempt, by the monotonic clock. Of simultaneous failures only the first counts."""
        if self.is_away and began_at < self._resumes_at:
            return
        self._failures += 1
        wished_s = min(retry_after_s or 0.0, _LONGEST_RETRY_AFTER_S)
        self._resumes_at = time.monotonic() + max(wished_s, self._waits.after(self._failures))

    async def wait(self) -> None:
        """Wait until the target may be tried again."""
        if self.is_away:
            await asyncio.sleep(max(0.0, self._resumes_at - time.monotonic()))

"""Growing waits: how long a target that fails is left alone."""

import asyncio
import random
import time
from dataclasses import dataclass

_LONGEST_RETRY_AFTER_S = 3600.0


@dataclass(frozen=True, slots=True)
class Waits:
    """first_s: after the first failure, doubled with each that follows, up to most_s; half of it to the whole."""

    first_s: float = 1.0
    most_s: float = 300.0

    def after(self, failures: int) -> float:
        whole_s = min(self.most_s, self.first_s * 2.0 ** min(failures - 1, 32))
        return whole_s * random.uniform(0.5, 1)  # noqa: S311  # so that deliverers do not come back all at once


class Pace:
    """Whether a target takes anything at all. While it does not, one attempt is made at a time, after a wait."""

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
        """began_at: when the attempt was, by the monotonic clock. Of several that fail at once the first one counts."""
        if self.is_away and began_at < self._resumes_at:
            return
        self._failures += 1
        wished_s = min(retry_after_s or 0.0, _LONGEST_RETRY_AFTER_S)
        self._resumes_at = time.monotonic() + max(wished_s, self._waits.after(self._failures))

    async def wait(self) -> None:
        """Until it may be tried again."""
        if self.is_away:
            await asyncio.sleep(max(0.0, self._resumes_at - time.monotonic()))

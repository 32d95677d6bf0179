"""What has changed of a job since its caller looked last (contracts/ganeti-rapi, 7)."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fleetlight.cells.job_words import ENDED

WATCHED = ("status", "oplog")
"""The fields that are looked at beside those that the caller asks for, before them."""
_LOOKS_EACH_S = 0.5


class JobLostError(Exception):
    """There is no such job, or none any more."""


@dataclass(frozen=True, slots=True)
class JobChange:
    """status: of the job. info: values of the fields that were asked for. entries: of the log, new ones."""

    status: str
    info: list[Any]
    entries: list[Any]


async def next_change(
    look: Callable[[], Awaitable[Sequence[Any] | None]],
    known_info: Sequence[Any] | None,
    known_serial: int | None,
    *,
    longest_s: float,
) -> JobChange | None:
    """Waits until something differs from what is known, and returns it; at once of a job that has ended.

    look: the values of WATCHED and of the fields; None without such a job. Returns None after `longest_s`.
    Raises JobLostError.
    """
    deadline = time.monotonic() + longest_s
    while True:
        values = await look()
        if values is None:
            raise JobLostError
        status, logs, *info = values
        entries = sorted(entry for of_one in logs or () for entry in of_one if entry[0] > (known_serial or 0))
        if entries or info != known_info or status in ENDED:
            return JobChange(status, info, entries)
        if time.monotonic() + _LOOKS_EACH_S > deadline:
            return None
        await asyncio.sleep(_LOOKS_EACH_S)

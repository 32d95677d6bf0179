"""Changes of a job since its caller's last look (contracts/ganeti-rapi, 7)."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fleetlight.cells.job_words import ENDED

WATCHED = ("status", "oplog")
"""Fields to read in front of those that the caller asks for."""
_LOOKS_EACH_S = 0.5


class JobLostError(Exception):
    """The job does not exist, or not any more."""


@dataclass(frozen=True, slots=True)
class JobChange:
    """A change of a job. status: of the job. info: values of the requested fields. entries: new entries of its log."""

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
    """Wait until a job differs from the known state, and return the change; at once if the job has ended.

    look: reads the values of WATCHED and of the fields; None if the job does not exist. Returns None after `longest_s`.
    Raises JobLostError when the job does not exist.
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

"""Making documents searchable while others are still being written.

To make many documents searchable is work for one processor of the index, in which their writers wait. Done in
small parts beside the writing, it is done when the writing is; and what is there can be found meanwhile.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Protocol

from fleetlight.indexer.errors import IndexerError
from fleetlight.indexer.writing.throttle import Throttle

# Measured: 80,000 rows took 76 microseconds each, 95 without this; a second between two parts was too long.
_INTERVAL_S = 0.5
# What comes in that time is enough for a part; a slow reader makes as many rows of it, and no writer waits longer.
_PART_ROWS = 5000
_LONGEST_INTERVAL_S = 10.0


class MakesSearchable(Protocol):
    """What is needed of an IndexWriter."""

    def make_searchable(self) -> None: ...


@contextmanager
def searchable_meanwhile(writer: MakesSearchable, pace: Throttle) -> Iterator[None]:
    """In the block, what has been written so far is made searchable each half second; not at the end.

    pace: of the writers. Slow ones are not worth so many small parts. A failure is left to the writers, which meet it
    themselves.
    """
    is_over = Event()
    interval_s = max(_INTERVAL_S, min(pace.takes_s(_PART_ROWS), _LONGEST_INTERVAL_S))

    def go_on() -> None:
        while not is_over.wait(interval_s):
            try:
                writer.make_searchable()
            except IndexerError:
                continue

    thread = Thread(target=go_on, name="searchable-meanwhile")
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()

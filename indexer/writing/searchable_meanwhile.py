"""Makes documents searchable while others are still being written.

A refresh of many documents occupies one processor of the index, and their writers wait for it. Small refreshes beside
the writes end with the writes, and documents can be found meanwhile.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Protocol

from fleetlight.indexer.errors import IndexerError
from fleetlight.indexer.writing.throttle import Throttle

# Measured: 80,000 rows took 76 microseconds each, 95 without this; a second between two parts was too long.
_INTERVAL_S = 0.5
# The rows of that time suffice for a refresh; a slow reader waits for as many rows, but no longer than the next figure.
_PART_ROWS = 5000
_LONGEST_INTERVAL_S = 10.0


class MakesSearchable(Protocol):
    """The part of an IndexWriter that refreshes the index."""

    def make_searchable(self) -> None: ...


@contextmanager
def searchable_meanwhile(writer: MakesSearchable, pace: Throttle) -> Iterator[None]:
    """Refresh the index every half second inside the context, but not at its end.

    pace: of the writers; slow ones need fewer refreshes. A failed refresh is ignored, since the writers meet the same
    failure.
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

"""Making documents searchable while others are still being written.

To make many documents searchable is work for one processor of the index, in which those who wrote them wait. Done in
small parts beside the writing, it is done when the writing is; and what is there can be found meanwhile.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Protocol

from indexer.errors import IndexerError

# Measured: 80,000 rows took 76 microseconds each, 95 without this; a second between two parts was too long.
_INTERVAL_S = 0.5


class MakesSearchable(Protocol):
    """What is needed of an IndexWriter."""

    def make_searchable(self) -> None: ...


@contextmanager
def searchable_meanwhile(writer: MakesSearchable) -> Iterator[None]:
    """Inside, what has been written so far is made searchable each half second; not at the end.

    A failure is left to those who write: they meet it themselves.
    """
    is_over = Event()

    def go_on() -> None:
        while not is_over.wait(_INTERVAL_S):
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

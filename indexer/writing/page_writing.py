"""Pages through the index: the next one is read while the ones before it are written, two at a time.

A writer of one page after the other leaves the index idle while it reads, and itself idle while the index works.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Protocol, TypeVar

from fleetlight.indexer.backends.base import Document, WriteResult
from fleetlight.indexer.writing.retrying_writer import WritesDocuments

# Measured: two bulk requests keep Elasticsearch busy, more only wait there.
_IN_FLIGHT = 2
_IDLE_INTERVAL_S = 1.0


class PageOfDocuments(Protocol):
    """Documents that were read together."""

    @property
    def documents(self) -> Iterable[Document]: ...


P = TypeVar("P", bound=PageOfDocuments)


def write_pages(
    pages: Iterator[P],
    writer: WritesDocuments,
    *,
    on_written: Callable[[P, WriteResult], None],
    on_idle: Callable[[], None],
) -> None:
    """Write all pages; returns when they are written.

    pages: is used by another thread, one page ahead of the writes.
    on_written: called in the order of the pages, when everything up to and with that page is written. on_idle: called
        each second while nothing else happens. Both in the caller's thread; what they raise ends the work.
    Raises what `pages` and the writer raise, when the writes under way have ended.
    """

    def finish(future: Future[Any]) -> None:
        while not wait([future], _IDLE_INTERVAL_S).done:
            on_idle()

    writing: deque[tuple[P, Future[WriteResult]]] = deque()

    def finish_oldest() -> None:
        page, write = writing.popleft()
        try:
            finish(write)
            on_written(page, write.result())
        except BaseException:
            # What comes after a page that was not written must not count either.
            writing.clear()
            raise

    with ThreadPoolExecutor(1 + _IN_FLIGHT, thread_name_prefix="index-pages") as threads:
        try:
            reading = threads.submit(next, pages, None)
            while True:
                finish(reading)
                page = reading.result()
                if page is None:
                    break
                reading = threads.submit(next, pages, None)
                if len(writing) == _IN_FLIGHT:
                    finish_oldest()
                writing.append((page, threads.submit(writer.write, page.documents)))
        finally:
            # Also after a failure to read: what has been written counts.
            while writing:
                finish_oldest()

"""The index backends: one small interface (`base`), an implementation per store.

`open_writer` and `open_searcher` are all that a process needs to know of them.
"""

from collections.abc import Callable
from dataclasses import dataclass

from indexer.backends.base import IndexSearcher, IndexWriter
from indexer.backends.elasticsearch import ElasticsearchSearcher, ElasticsearchWriter
from indexer.backends.settings import IndexSettings
from indexer.backends.sqlite import SqliteSearcher, SqliteWriter


@dataclass(frozen=True, slots=True)
class Backend:
    """How both sides of one backend are made."""

    writer: Callable[[IndexSettings], IndexWriter]
    searcher: Callable[[IndexSettings], IndexSearcher]


BACKENDS = {
    "elasticsearch": Backend(ElasticsearchWriter, ElasticsearchSearcher),
    "sqlite": Backend(lambda settings: SqliteWriter(settings.path), lambda settings: SqliteSearcher(settings.path)),
}


def open_writer(settings: IndexSettings) -> IndexWriter:
    """The writing side; call `prepare` before anything else. Raises IndexUnavailableError when it cannot be opened."""
    return BACKENDS[settings.backend].writer(settings)


def open_searcher(settings: IndexSettings) -> IndexSearcher:
    """The reading side; opens nothing before its first use."""
    return BACKENDS[settings.backend].searcher(settings)

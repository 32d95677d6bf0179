"""Opens the configured index backend; processes need not know more about backends."""

from collections.abc import Callable
from dataclasses import dataclass

from fleetlight.indexer.backends.base import Generations, IndexSearcher, IndexWriter
from fleetlight.indexer.backends.examination import IndexExamination
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.backends.sqlite import schema as sqlite_schema
from fleetlight.indexer.backends.sqlite.generations import SqliteGenerations
from fleetlight.indexer.backends.sqlite.searcher import SqliteSearcher
from fleetlight.indexer.backends.sqlite.writer import SqliteWriter


@dataclass(frozen=True, slots=True)
class Backend:
    """How to open writer, searcher and generations of a backend, and how to examine it."""

    writer: Callable[[IndexSettings], IndexWriter]
    searcher: Callable[[IndexSettings], IndexSearcher]
    generations: Callable[[IndexSettings], Generations]
    examine: Callable[[IndexSettings, float], IndexExamination]


def _elasticsearch() -> Backend:
    # Imported only here: the client alone takes a third of a command's start time.
    from fleetlight.indexer.backends.elasticsearch import examination as elasticsearch_examination  # noqa: PLC0415
    from fleetlight.indexer.backends.elasticsearch.generations import ElasticsearchGenerations  # noqa: PLC0415
    from fleetlight.indexer.backends.elasticsearch.searcher import ElasticsearchSearcher  # noqa: PLC0415
    from fleetlight.indexer.backends.elasticsearch.writer import ElasticsearchWriter  # noqa: PLC0415

    return Backend(
        ElasticsearchWriter, ElasticsearchSearcher, ElasticsearchGenerations, elasticsearch_examination.examine
    )


def _sqlite() -> Backend:
    return Backend(
        lambda settings: SqliteWriter(settings.path, schemas_dir=settings.schemas_dir),
        lambda settings: SqliteSearcher(settings.path),
        lambda settings: SqliteGenerations(settings.path, schemas_dir=settings.schemas_dir),
        sqlite_schema.examine,
    )


BACKENDS = {"elasticsearch": _elasticsearch, "opensearch": _elasticsearch, "sqlite": _sqlite}


def open_writer(settings: IndexSettings) -> IndexWriter:
    """Open a writer; call `prepare` before anything else. Raises IndexUnavailableError if it cannot be opened."""
    return BACKENDS[settings.backend]().writer(settings)


def open_searcher(settings: IndexSettings) -> IndexSearcher:
    """Create a searcher, which opens nothing before its first use."""
    return BACKENDS[settings.backend]().searcher(settings)


def open_generations(settings: IndexSettings) -> Generations:
    """Open the physical indexes behind the index. Raises IndexUnavailableError if it cannot be opened."""
    return BACKENDS[settings.backend]().generations(settings)


def examine_index(settings: IndexSettings, timeout_s: float) -> IndexExamination:
    """Examine the index, within about `timeout_s`. Raises IndexUnavailableError and IndexRequestError."""
    return BACKENDS[settings.backend]().examine(settings, timeout_s)

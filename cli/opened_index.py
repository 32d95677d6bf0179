"""The index, as a command of a person uses it."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from fleetlight.indexer.backends.base import IndexWriter
from fleetlight.indexer.backends.opening import examine_index, open_writer
from fleetlight.indexer.backends.settings import IndexSettings

_ANSWERS_WITHIN_S = 5.0


@contextmanager
def opened_index(settings: IndexSettings) -> Iterator[IndexWriter]:
    """The writing side, not prepared yet; closed at the end.

    Raises IndexUnavailableError when the server says nothing for seconds: later requests of a command may take
    as long as `index.write_timeout_s`, which is too long to learn that the server hangs.
    """
    examine_index(settings, _ANSWERS_WITHIN_S)
    with closing(open_writer(settings)) as writer:
        yield writer

"""Documents that another program has written and that this one cannot read: the same for all backends."""

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache

import structlog

from fleetlight.indexer.backends.base import Document
from fleetlight.indexer.errors import IndexDocumentError

_log = structlog.get_logger(__name__)


def read_around_damage(
    ids: Collection[str], read: Callable[[Collection[str]], Mapping[str, Document]]
) -> Mapping[str, Document]:
    """What `read` gives of `ids`. A damaged document counts as none: the next change of its instance writes it anew."""
    left = list(ids)
    while True:
        try:
            return read(left)
        except IndexDocumentError as error:
            log_damaged_document(error.document_id, str(error))
            left.remove(error.document_id)


@lru_cache(maxsize=4096)
def log_damaged_document(document_id: str, reason: str) -> None:
    """Once for each, since it is met again and again."""
    _log.error("index_document_damaged", document=document_id, reason=reason)

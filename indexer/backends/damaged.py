"""How all backends handle documents that another program has written and this one cannot read."""

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache

import structlog

from fleetlight.indexer.backends.base import Document
from fleetlight.indexer.errors import IndexDocumentError

_log = structlog.get_logger(__name__)


def read_around_damage(
    ids: Collection[str], read: Callable[[Collection[str]], Mapping[str, Document]]
) -> Mapping[str, Document]:
    """Read `ids` without the damaged documents: an instance's next change writes its document anew."""
    left = list(ids)
    while True:
        try:
            return read(left)
        except IndexDocumentError as error:
            log_damaged_document(error.document_id, str(error))
            left.remove(error.document_id)


@lru_cache(maxsize=4096)
def log_damaged_document(document_id: str, reason: str) -> None:
    """Log each damaged document only once, since readers meet it again and again."""
    _log.error("index_document_damaged", document=document_id, reason=reason)

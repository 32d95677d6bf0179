"""How all backends handle fields that this program does not know."""

from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from fleetlight.indexer.backends.base import Document
from fleetlight.indexer.extra_fields import described


def described_documents(documents: Iterable[Document], folder: Path | None) -> Iterable[Document]:
    """Add to documents the kinds of extra fields that the schemas in `folder` describe."""
    if folder is None:
        return documents
    return (
        document if document.extra is None else replace(document, extra=described(document.extra, folder))
        for document in documents
    )


def count_schema_violations(documents: Iterable[Document]) -> int:
    """The number of extra fields in these documents that contradict their schemas."""
    return sum(len(document.extra.schema_violations) for document in documents if document.extra is not None)

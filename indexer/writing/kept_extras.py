"""Fields that this program does not know, kept when an instance is written as its cell has it.

A row read by this program lacks them: they came with a message of a newer producer, and the index alone has them. What
they say may be one change old until the next message of the instance.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from msgspec.structs import replace

from fleetlight.indexer.backends.base import Document, IndexWriter, WriteResult
from fleetlight.indexer.writing.retrying_writer import WritesDocuments


class ReadsDocuments(Protocol):
    """The part of an IndexWriter that gives documents back."""

    def read(self, ids: Collection[str]) -> Mapping[str, Document]: ...


class ExtraFieldKeeper:
    """Writes documents of rows, with the extra fields that `known` has of them: one read for each write."""

    def __init__(self, writer: WritesDocuments, known: ReadsDocuments) -> None:
        self._writer = writer
        self._known = known

    def write(self, documents: Iterable[Document]) -> WriteResult:
        documents = list(documents)
        known = self._known.read([document.id for document in documents if document.extra is None])
        return self._writer.write([_with_extra(document, known.get(document.id)) for document in documents])


def keeping_extras(writer: WritesDocuments, known: ReadsDocuments, index: IndexWriter) -> WritesDocuments:
    """For many rows: `writer` itself, which is faster, if no document of `index` has such a field."""
    index.make_searchable()
    return ExtraFieldKeeper(writer, known) if index.count_extra_fields() else writer


def _with_extra(document: Document, known: Document | None) -> Document:
    if document.extra is not None or known is None or known.extra is None or known.cell_uuid != document.cell_uuid:
        return document
    return replace(document, extra=known.extra)

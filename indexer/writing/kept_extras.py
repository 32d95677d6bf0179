"""Keeps fields that this program does not know when a row of the cell replaces the document of an instance.

They came with a message of a newer producer, and only the index has them, so a row lacks them. Their values may be one
change old until the next message of the instance.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from fleetlight.indexer.backends.base import Document, IndexWriter, WriteResult
from fleetlight.indexer.writing.retrying_writer import WritesAndReads, WritesDocuments


class ExtraFieldKeeper:
    """Writes documents of rows with the extra fields of the documents in `known`."""

    def __init__(self, writer: WritesDocuments, known: WritesAndReads) -> None:
        self._writer = writer
        self._known = known

    def write(self, documents: Iterable[Document]) -> WriteResult:
        """Read the documents in `known`, then write. Raises what both raise."""
        documents = list(documents)
        known = self._known.read([document.id for document in documents if document.extra is None])
        return self._writer.write([_with_extra(document, known.get(document.id)) for document in documents])


def keeping_extras(writer: WritesDocuments, known: WritesAndReads, index: IndexWriter) -> WritesDocuments:
    """The writer for many rows: `writer` itself, which is faster, if no document of `index` has extra fields; else an
    ExtraFieldKeeper. Raises what `index` raises.
    """
    index.make_searchable()
    return ExtraFieldKeeper(writer, known) if index.count_extra_fields() else writer


def _with_extra(document: Document, known: Document | None) -> Document:
    if document.extra is not None or known is None or known.extra is None or known.cell_uuid != document.cell_uuid:
        return document
    return replace(document, extra=known.extra)

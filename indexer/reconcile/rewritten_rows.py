"""Rows of a restored cell that have reached a revision again, with other content than in the future that was lost.

Revisions tell nothing of them: to a comparison, and to the index itself, both are the same. So the content counts.
"""

from collections.abc import Callable

from cells.model import ChangelogAdapter
from indexer.backends.base import IndexWriter
from indexer.writing.rereading import render_rows
from query.filters import EVERYTHING
from query.page import PageRequest
from query.sort import SortOrder
from resources.instance import INSTANCE_FIELDS

_BY_UUID = SortOrder.of(INSTANCE_FIELDS, ())


def replace_rewritten(
    adapter: ChangelogAdapter, writer: IndexWriter, *, batch_size: int, on_batch: Callable[[], None]
) -> int:
    """Put rows in the place of documents that have the same revision and say something else; how many there were.

    Documents of other cells, to which instances have moved, stay.
    Raises CellUnreachableError, and what the writer raises; it can be repeated.
    """
    replaced = 0
    request = PageRequest(EVERYTHING, _BY_UUID, batch_size)
    while True:
        rows = adapter.read_page(request)
        wanted, _ = render_rows(rows)
        known = writer.read([document.id for document in wanted])
        rewritten = [
            document
            for document in wanted
            if (there := known.get(document.id)) is not None
            and (there.cell_uuid, there.version) == (document.cell_uuid, document.version)
            and (there.record, there.view) != (document.record, document.view)
        ]
        if rewritten:
            writer.remove({document.id: document.version for document in rewritten})
            writer.write(rewritten)
            replaced += len(rewritten)
        on_batch()
        if len(rows) < batch_size:
            return replaced
        request = PageRequest(EVERYTHING, _BY_UUID, batch_size, (rows[-1].uuid,))

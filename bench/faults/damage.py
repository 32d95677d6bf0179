"""What a fault has cost: index and cells compared row by row, by `index verify`, and with what the cells promised."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import astuple, dataclass
from operator import add

from sqlalchemy import func, select

from bench.faults.load import Promise
from bench.faults.world import World
from fleetlight.cells.kinds.opening import open_changelog_adapter
from fleetlight.cells.model import ChangelogAdapter, InstanceRow
from fleetlight.cells.tables import changes
from fleetlight.indexer.backends.base import Document, IndexWriter
from fleetlight.indexer.reconcile.native_cell import NativeComparison
from fleetlight.indexer.reconcile.reconcile import verify
from fleetlight.indexer.transform.documents import to_document
from fleetlight.query.filters import EVERYTHING
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import SortOrder
from fleetlight.resources.clock import system_clock
from fleetlight.resources.instance import INSTANCE_FIELDS

_BY_UUID = SortOrder.of(INSTANCE_FIELDS, ())
_ALL = 100_000
_HEX = tuple("0123456789abcdef")


@dataclass(frozen=True, slots=True)
class Damage:
    """lost: rows that the index does not have as they are, and promises of a cell that it did not keep.

    doubled: documents that are no row of their cell, and revisions that were announced under two numbers.
    resurrected: instances that are deleted in their cell and not in the index.
    unverified: differences that `index verify` finds.
    feed_lost, feed_doubled, feed_disordered: of the changes that a consumer of the feed got (bench.faults.follower).
    feed_refused: cursors of it that were refused, though nothing was restored.
    """

    lost: int = 0
    doubled: int = 0
    resurrected: int = 0
    unverified: int = 0
    feed_lost: int = 0
    feed_doubled: int = 0
    feed_disordered: int = 0
    feed_refused: int = 0

    def __add__(self, other: "Damage") -> "Damage":
        return Damage(*map(add, astuple(self), astuple(other)))


def damage(world: World, writer: IndexWriter, journal: Mapping[str, Promise]) -> Damage:
    """Of all cells; nothing may be changed meanwhile."""
    total = Damage()
    for number, cell in enumerate(world.cells):
        promises = {uuid: promise for uuid, promise in journal.items() if promise.cell == number}
        with closing(open_changelog_adapter(cell)) as adapter:
            total += _of_cell(world, adapter, writer, promises)
    return total


def has_caught_up(world: World, writer: IndexWriter, since: int) -> bool:
    """Whether all changes are published, and the index says of every cell that it has them all, and had after `since`.

    since: microseconds since the epoch.
    """
    if world.unpublished():
        return False
    progress = writer.load_progress()
    for cell in world.cells:
        with closing(open_changelog_adapter(cell)) as adapter:
            published = adapter.published_sequence()
        known = progress.get(cell.uuid)
        if known is None or not known.is_complete or known.watermark != published:
            return False
        if not since <= known.fresh_as_of <= system_clock():
            return False
    return True


def rows_of(adapter: ChangelogAdapter) -> Mapping[str, InstanceRow]:
    """All instances of a cell by uuid, the deleted ones too."""
    return {row.uuid: row for row in adapter.read_page(PageRequest(EVERYTHING, _BY_UUID, _ALL))}


def _of_cell(world: World, adapter: ChangelogAdapter, writer: IndexWriter, promises: Mapping[str, Promise]) -> Damage:
    rows = rows_of(adapter)
    documents = writer.read(rows.keys())
    equal = {uuid for uuid, document in documents.items() if _is_equal(document, rows[uuid])}
    strangers = writer.revisions(adapter.cell.uuid, _HEX).keys() - rows.keys()
    verified = verify(NativeComparison(adapter, writer, catch_up_timeout_s=0), repair=False)
    return Damage(
        lost=len(rows.keys() - equal)
        + sum(not _is_kept(promise, rows.get(uuid)) for uuid, promise in promises.items()),
        doubled=len(strangers) + _announced_twice(world, adapter.cell.name),
        resurrected=sum(
            bool(rows[uuid].record["deleted"]) and not document.record["deleted"]
            for uuid, document in documents.items()
        ),
        unverified=len(verified.differences),
    )


def _is_equal(document: Document, row: InstanceRow) -> bool:
    wanted = to_document(row.cell_uuid, row.revision, row.record)
    if (document.cell_uuid, document.version, document.view) != (wanted.cell_uuid, wanted.version, wanted.view):
        return False
    return all(document.record[name] == value for name, value in wanted.record.items())


def _is_kept(promise: Promise, row: InstanceRow | None) -> bool:
    if row is None or row.revision < promise.revision:
        return False
    return bool(row.record["deleted"]) == promise.is_deleted or not promise.is_certain


def _announced_twice(world: World, cell_name: str) -> int:
    revision = (changes.c.instance_uuid, changes.c.revision)
    twice = select(func.count()).select_from(select(*revision).group_by(*revision).having(func.count() > 1).subquery())
    with world.engines[cell_name].connect() as connection:
        return int(connection.execute(twice).scalar_one())

"""The audit: indexers permanently compare what they follow with the cells, in a small share of their time, and repair
differences.

The seal shows at once what other programs write (fleetlight.indexer.reconcile.sealer); the audit finds what the seal
cannot, our own mistakes. It compares revisions by digests of ranges, each cell once in `audit_interval_s` if its share
of time allows, and beside that content, page by page, which takes as long as it takes. A difference is at first only
suspected, and checked again when the index has reached the sequence that the cell then had. If it still differs, lists
ask the cell from then on, and the one procedure repairs it (fleetlight.indexer.reconcile.reconcile). Lists use the
index again only when all known differences are repaired and the rest of the cell was compared: where one row was
altered, others may be.

The audit does not delay the followers of the cells: it has its own thread and connections, and a cell that hangs keeps
no message waiting.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from math import inf
from threading import Event

import structlog

from fleetlight.cells.errors import CellUnreachableError, FleetUnreachableError
from fleetlight.cells.fleet.audit_rounds import AuditRound
from fleetlight.cells.model import Cell, ChangelogAdapter
from fleetlight.indexer.backends.base import REPAIRS
from fleetlight.indexer.errors import IndexerError, IndexUnavailableError, StopRequestedError
from fleetlight.indexer.metrics import IndexerMetrics
from fleetlight.indexer.reconcile.cell_repair import CellRepair
from fleetlight.indexer.reconcile.native_cell import NativeComparison, Suspects
from fleetlight.indexer.reconcile.other_items import OtherItemComparison
from fleetlight.indexer.reconcile.reconcile import WarnedLists
from fleetlight.indexer.settings import IndexerSettings
from fleetlight.resources.indexed_items import INDEXED_ITEMS

_log = structlog.get_logger(__name__)

_HEXADECIMAL = "0123456789abcdef"
# The range by which a cell of unknown size is compared first.
_SAMPLE = _HEXADECIMAL[0]
# A range of this size takes PostgreSQL 140 ms of processor time; connecting for each costs 10 to 20.
_RANGE_ROWS = 100_000
_PAGE_ROWS = 200
_IDLE_S = 0.2
# The most suspects taken from a range; with this many pending, a cell is not compared further, to save memory.
_MOST_SUSPECTS = 1000
_SHOWN = 5
_REPAIRS_AT_ONCE = 4
# The index gets there with the next refresh, or not soon.
_CATCH_UP_S = 5.0
_AWAY = (CellUnreachableError, FleetUnreachableError, IndexerError)


@dataclass(frozen=True, slots=True)
class AuditedCell:
    """A cell that this process follows now. reached: returns the sequence that the index has reached."""

    cell: Cell
    reached: Callable[[], int]


@dataclass(slots=True)
class _CellAudit:
    """The progress of auditing one cell.

    due_s, content_due_s: when to compare its next range and page; all times are on the monotonic clock.
    postponed_until_s: when to continue after something was down. ranges: remaining ones of the round that began at
    `began_s`. rows: number in the last round, or estimated from a sample; None before. rows_now: counted so far in this
    round. is_suspected: whether it was when this round began. after: the row after which content is read next.
    suspects, item_suspects: to be checked again. unrepaired: differing instances whose repair was postponed or failed.
    is_all_suspected: the process that knew the differences was cut off. last: the findings of the last round and since.
    """

    due_s: float = 0.0
    began_s: float = 0.0
    content_due_s: float = 0.0
    postponed_until_s: float = 0.0
    content_began_s: float = 0.0
    ranges: list[str] = field(default_factory=list)
    rows: int | None = None
    rows_now: int = 0
    is_suspected: bool = False
    after: str | None = None
    suspects: list[Suspects] = field(default_factory=list)
    item_suspects: dict[str, tuple[frozenset[str], int]] = field(default_factory=dict)
    unrepaired: set[str] = field(default_factory=set)
    is_all_suspected: bool = False
    repair: Future[None] | None = None
    last: AuditRound | None = None

    def start_over(self) -> None:
        """Compare revisions from the beginning; content continues, and suspects are looked at anew.

        Otherwise they might wait for a sequence that the cell, if it was restored meanwhile, does not reach for long.
        """
        self.ranges.clear()
        self.item_suspects.clear()
        if uuids := frozenset[str]().union(*(each.uuids | each.unnumbered for each in self.suspects)):
            self.suspects = [Suspects(frozenset(), uuids, {}, 0)]


def _unrecorded(_cell_uuid: str, _last: AuditRound) -> None:
    """For callers that do not record what was repaired."""


class Auditor:
    """Audits those cells of an indexer that number their changes; `run` needs a thread.

    cells: returns the cells that are followed now, by uuid. record: saves the findings of a cell's last round, by its
    uuid; raises FleetUnreachableError. Cells that are down are skipped until the next round.
    """

    def __init__(
        self,
        cells: Callable[[], Mapping[str, AuditedCell]],
        repair: CellRepair,
        settings: IndexerSettings,
        metrics: IndexerMetrics,
        record: Callable[[str, AuditRound], None] = _unrecorded,
    ) -> None:
        self._record = record
        self._cells = cells
        self._repairs = repair
        self._open_adapter = repair.open_adapter
        self._writer = repair.writer
        self._settings = settings
        self._metrics = metrics
        self._audits: dict[str, _CellAudit] = {}

    def run(self, stop: Event) -> None:
        """Audit until `stop` is set."""
        with ThreadPoolExecutor(_REPAIRS_AT_ONCE, thread_name_prefix="audit-repair") as repairs:
            while not stop.is_set():
                began_s = time.monotonic()
                has_worked = self._step(repairs, stop)
                took_s = time.monotonic() - began_s
                stop.wait(took_s * (1 / self._settings.audit_share - 1) if has_worked else _IDLE_S)

    def _step(self, repairs: ThreadPoolExecutor, stop: Event) -> bool:
        """Do one piece of work for one cell: a range, a page, or suspects. Returns False if there is none to do."""
        cells = self._cells()
        self._raise_mistakes()
        for uuid in self._audits.keys() - cells.keys():
            # Keep its state: it returns when whatever was down is back, and comparing its content takes hours.
            self._audits[uuid].start_over()
        for uuid in cells.keys() - self._audits.keys():
            self._audits[uuid] = _CellAudit()
            self._metrics.audit_began(uuid)
        now_s = time.monotonic()
        idle = {uuid: self._audits[uuid] for uuid in cells if _is_idle(self._audits[uuid], now_s)}
        for uuid, audit in idle.items():
            if _decidable(audit, cells[uuid].reached()):
                self._guarded(audit, partial(self._decide, cells[uuid], audit, repairs, stop))
                return True
        open_ = [(uuid, audit) for uuid, audit in idle.items() if not _has_enough_suspects(audit)]
        ranges_due_s, of_range = min(((audit.due_s, uuid) for uuid, audit in open_), default=(inf, ""))
        page_due_s, of_page = min(((audit.content_due_s, uuid) for uuid, audit in open_), default=(inf, ""))
        if min(ranges_due_s, page_due_s) > now_s:
            return False
        # Work that may continue at once counts as due since its last piece, so that ranges and pages take turns.
        if page_due_s < ranges_due_s:
            self._guarded(idle[of_page], partial(self._compare_page, cells[of_page].cell, idle[of_page]))
        else:
            work = partial(self._compare_range, cells[of_range].cell, idle[of_range], repairs, stop)
            self._guarded(idle[of_range], work)
        return True

    def _guarded(self, audit: _CellAudit, work: Callable[[], None]) -> None:
        try:
            work()
        except _AWAY as error:
            _log.info("indexer.audit_postponed", reason=str(error))
            audit.postponed_until_s = time.monotonic() + self._settings.audit_interval_s
            audit.start_over()

    def _compare_range(self, cell: Cell, audit: _CellAudit, repairs: ThreadPoolExecutor, stop: Event) -> None:
        if not audit.ranges:
            audit.began_s, audit.rows_now = time.monotonic(), 0
            audit.ranges = [_SAMPLE] if audit.rows is None else _ranges(audit.rows)
            audit.is_suspected = self._is_suspected(cell)
            self._metrics.is_suspected.labels(cell.uuid).set(audit.is_suspected)
        with closing(self._open_adapter(cell)) as adapter:
            comparison = self._comparison(adapter)
            batches = comparison.differing_in_range(audit.ranges[0], lambda: None)
            self._suspect(audit, comparison, list(islice(chain.from_iterable(batches), _MOST_SUSPECTS)))
            audit.ranges.pop(0)
            if audit.rows is None:
                # The sample tells how many ranges to use, since each costs much even if it has few rows.
                audit.rows = comparison.seen.rows * len(_HEXADECIMAL)
                audit.ranges = _ranges(audit.rows)
            else:
                audit.rows_now += comparison.seen.rows
            if not audit.ranges:
                self._compare_items(adapter, audit)
        if audit.ranges:
            # Compare the next range after the other cells had their turn.
            audit.due_s = time.monotonic()
            return
        audit.rows = audit.rows_now
        round_s = time.monotonic() - audit.began_s
        audit.due_s = audit.began_s + max(self._settings.audit_interval_s, round_s)
        self._metrics.audited(cell.uuid, "revisions", round_s)
        self._note(cell, audit, AuditRound(self._repairs.clock(), audit.rows))
        if audit.unrepaired or audit.is_suspected:
            audit.is_all_suspected = audit.is_all_suspected or not audit.unrepaired
            audit.repair = repairs.submit(self._repair, cell, audit, stop)

    def _compare_page(self, cell: Cell, audit: _CellAudit) -> None:
        if audit.after is None:
            audit.content_began_s = time.monotonic()
        with closing(self._open_adapter(cell)) as adapter:
            comparison = self._comparison(adapter)
            uuids, audit.after = comparison.differing_in_page(audit.after, _PAGE_ROWS)
            self._suspect(audit, comparison, uuids)
        if audit.after is None:
            self._metrics.audited(cell.uuid, "content", time.monotonic() - audit.content_began_s)
            audit.content_due_s = time.monotonic() + self._settings.audit_interval_s
        else:
            audit.content_due_s = time.monotonic()

    def _compare_items(self, adapter: ChangelogAdapter, audit: _CellAudit) -> None:
        for item_type in INDEXED_ITEMS:
            if item_type in audit.item_suspects or not self._writer.are_items_whole(item_type, adapter.cell.uuid):
                continue
            differ = frozenset(OtherItemComparison(adapter, self._writer, item_type).differing())
            if differ:
                audit.item_suspects[item_type] = differ, adapter.published_sequence()

    def _suspect(self, audit: _CellAudit, comparison: NativeComparison, uuids: Sequence[str]) -> None:
        if uuids:
            audit.suspects.append(comparison.look(uuids))

    def _decide(self, audited: AuditedCell, audit: _CellAudit, repairs: ThreadPoolExecutor, stop: Event) -> None:
        """Check suspects again, as far as the index has caught up."""
        cell, reached = audited.cell, audited.reached()
        differ: list[str] = []
        later: list[Suspects] = []
        with closing(self._open_adapter(cell)) as adapter:
            comparison = self._comparison(adapter)
            self._decide_items(adapter, audit, reached)
            for suspects in audit.suspects:
                if suspects.sequence > reached:
                    later.append(suspects)
                    continue
                differ += [each.uuid for each in comparison.differing_of(suspects)]
                if suspects.unnumbered:
                    later.append(comparison.look(suspects.unnumbered))
        audit.suspects = later
        # Known differences are tried again after each round anyway.
        if new := set(differ) - audit.unrepaired:
            self._mark_suspected(cell, audit, sorted(new))
            audit.repair = repairs.submit(self._repair, cell, audit, stop)

    def _decide_items(self, adapter: ChangelogAdapter, audit: _CellAudit, reached: int) -> None:
        cell = adapter.cell
        for item_type, (suspected, sequence) in list(audit.item_suspects.items()):
            if sequence > reached:
                continue
            del audit.item_suspects[item_type]
            differ = suspected.intersection(OtherItemComparison(adapter, self._writer, item_type).differing())
            if differ:
                self._tell(cell, sorted(differ))
                # From now on lists ask the cell, and its follower repairs the items.
                self._writer.mark_items(item_type, cell.uuid, are_whole=False)

    def _mark_suspected(self, cell: Cell, audit: _CellAudit, differ: Sequence[str]) -> None:
        is_first = not audit.unrepaired
        audit.unrepaired.update(differ)
        if audit.last is not None:
            self._note(cell, audit, replace(audit.last, found=audit.last.found + len(differ)))
        self._tell(cell, differ)
        self._metrics.is_suspected.labels(cell.uuid).set(1)
        if is_first and self._is_suspected(cell):
            audit.is_all_suspected = True
        WarnedLists(self._writer, cell.uuid, _without_pause).suspect()

    def _is_suspected(self, cell: Cell) -> bool:
        return cell.uuid in self._writer.load_state(REPAIRS)

    def _tell(self, cell: Cell, differ: Sequence[str]) -> None:
        _log.warning("indexer.audit_found", cell=cell.name, differences=len(differ), first=list(differ[:_SHOWN]))
        self._metrics.audit_differences.labels(cell.uuid).inc(len(differ))

    def _repair(self, cell: Cell, audit: _CellAudit, stop: Event) -> None:
        """Repair the known differences and all others; a failed repair is tried again after the next round."""
        try:
            WarnedLists(self._writer, cell.uuid, stop.wait).suspect()
            result = self._repairs.repair(cell, None if audit.is_all_suspected else frozenset(audit.unrepaired), stop)
            if result is not None and not result.wrong:
                WarnedLists(self._writer, cell.uuid, stop.wait).end()
        except StopRequestedError:
            return
        except IndexUnavailableError as error:
            # Another program may prevent writing to the index.
            _log.warning("indexer.repair_postponed", cell=cell.name, reason=str(error))
            return
        if result is None:
            return
        audit.unrepaired, audit.is_all_suspected = set(result.wrong), False
        if audit.last is not None:
            self._note(cell, audit, replace(audit.last, repaired=audit.last.repaired + result.repaired))
        self._metrics.is_suspected.labels(cell.uuid).set(bool(result.wrong))
        _log.info("indexer.audit_repaired", cell=cell.name, repaired=result.repaired, remaining=len(result.wrong))

    def _note(self, cell: Cell, audit: _CellAudit, last: AuditRound) -> None:
        audit.last = last
        with suppress(FleetUnreachableError):  # the next round is recorded with more
            self._record(cell.uuid, last)

    def _raise_mistakes(self) -> None:
        for audit in self._audits.values():
            if audit.repair is not None and audit.repair.done():
                audit.repair.result()

    def _comparison(self, adapter: ChangelogAdapter) -> NativeComparison:
        return NativeComparison(adapter, self._writer, catch_up_timeout_s=0, owners=self._repairs.owners)


def _without_pause(_seconds: float) -> None:
    """Do not wait: nothing is removed to make room."""


def _ranges(rows: int) -> list[str]:
    """The prefixes of uuids by which a cell with this many rows is compared."""
    if rows <= _RANGE_ROWS:
        return [""]
    if rows <= _RANGE_ROWS * len(_HEXADECIMAL):
        return list(_HEXADECIMAL)
    return [high + low for high in _HEXADECIMAL for low in _HEXADECIMAL]


def _decidable(audit: _CellAudit, reached: int) -> bool:
    sequences = [suspects.sequence for suspects in audit.suspects]
    sequences += [sequence for _, sequence in audit.item_suspects.values()]
    return any(sequence <= reached for sequence in sequences)


def _has_enough_suspects(audit: _CellAudit) -> bool:
    return sum(len(suspects.uuids) + len(suspects.unnumbered) for suspects in audit.suspects) >= _MOST_SUSPECTS


def _is_idle(audit: _CellAudit, now_s: float) -> bool:
    return audit.postponed_until_s <= now_s and (audit.repair is None or audit.repair.done())

"""The instances or nodes that match a query, as a watched list."""

from collections.abc import Sequence
from typing import Any

import msgspec

from fleetlight.api.caller import Caller
from fleetlight.api.query.item_query import ItemQuery
from fleetlight.api.query.scope import THERE, choose_cells, projects_of
from fleetlight.cells.model import Cell, InstanceRow
from fleetlight.listing.watches.changelogs import ChangedItem
from fleetlight.listing.watches.watched_list import ChangeKind, Condition, CoveredCell
from fleetlight.query.evaluate import matcher
from fleetlight.query.filters import EVERYTHING, Filter, all_of
from fleetlight.resources.fields import from_microseconds
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.views.query2.catalog import values_of
from fleetlight.views.query2.projection import RowMaker
from fleetlight.views.query2.values import CellFacts, Facts, split

_encode = msgspec.json.Encoder().encode


class WatchedItems:
    """A WatchedList of the items that match a query. Live values of nodes are shown as for nodes without an agent.

    cells: those of the fleet. Raises ForbiddenError where the caller may not see all projects, and asks for them.
    """

    def __init__(self, question: ItemQuery, caller: Caller, cells: Sequence[Cell]) -> None:
        known = question.known
        only, wanted = choose_cells(question.filter, known, cells, None)
        stored, rest = split(wanted, values_of(known.name))
        visible: Filter = EVERYTHING
        if known.name == INSTANCE_FIELDS.name:
            visible = projects_of(caller, all_projects=question.all_projects)
            stored = all_of(stored, THERE)
        self._only = None if only is None else frozenset(only)
        self.condition = Condition(known.name, self._only, visible, stored, rest)
        self._is_in_scope, self._is_wanted = matcher(visible, INSTANCE_FIELDS), matcher(stored, INSTANCE_FIELDS)
        self._changed_at = values_of(known.name)["mtime"].make
        self._tried = RowMaker(known, (), rest)
        self._columns = RowMaker(known, question.names, EVERYTHING)
        self._is_admin = caller.is_admin
        self._facts = {cell.uuid: CellFacts(cell.name, is_configured_here=cell.can.takes_changes) for cell in cells}

    def shows(self, row: InstanceRow) -> bool:
        return (self._only is None or row.cell_uuid in self._only) and self._is_in_scope(row.record)

    def has(self, row: InstanceRow) -> bool:
        return self._is_wanted(row.record) and self._tried.keeps(self._facts_of(row))

    def event(self, kind: ChangeKind, _change: ChangedItem, row: InstanceRow) -> tuple[str, bytes]:
        said: dict[str, Any] = {"kind": kind, "id": row.uuid}
        if kind is not ChangeKind.LEAVE:
            said["cells"] = self._columns.cells(self._facts_of(row))
        if self._is_admin:
            said["cell"] = self._cell_of(row).name
        return kind, _encode({**said, "revision": row.revision, "at": self._moment_of(row)})

    def coverage(self, cells: Sequence[CoveredCell], cursor: str | None) -> bytes:
        return _encode({**({} if cursor is None else {"cursor": cursor}), **self.covered(cells)})

    def covered(self, cells: Sequence[CoveredCell]) -> dict[str, Any]:
        """Return the reader's coverage of the fleet; only administrators see cells."""
        said: dict[str, Any] = {"complete": all(each.why_not is None for each in cells)}
        return {**said, "cells": {each.cell.name: _covered(each) for each in cells}} if self._is_admin else said

    def _moment_of(self, row: InstanceRow) -> str | None:
        """Return the time of the item's last change, by RFC 3339."""
        at = self._changed_at(self._facts_of(row))[1]
        return None if at is None else from_microseconds(at).isoformat(timespec="microseconds").replace("+00:00", "Z")

    def _facts_of(self, row: InstanceRow) -> Facts:
        cell = self._cell_of(row)
        return Facts(row.record, row.revision if cell.is_configured_here else None, cell)

    def _cell_of(self, row: InstanceRow) -> CellFacts:
        return self._facts.get(row.cell_uuid) or CellFacts(row.cell_uuid)


def _covered(covered: CoveredCell) -> dict[str, Any]:
    return {
        "state": "followed" if covered.why_not is None else "down",
        "reason": covered.why_not,
        "by": "changes" if covered.cell.can.numbers_changes else "comparison",
        "sequence": None if covered.position is None else covered.position.sequence,
    }

"""What must be true of every list, whichever databases and index are below it."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fleetlight.cells.errors import InstanceNotFoundError, InvalidTransitionError
from fleetlight.listing.answer import Consistency, Route
from fleetlight.query.counts import CountRequest
from fleetlight.query.filters import (
    EVERYTHING,
    Filter,
    HasAddress,
    HasName,
    HasOneName,
    HasOtherName,
    LacksAddress,
    Leaf,
    Matches,
    Not,
    NotMatches,
    leaves,
)
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import Collation, SortOrder
from fleetlight.resources.fields import Kind
from fleetlight.resources.instance import INSTANCE_FIELDS
from tests.property.instance_strategies import CELLS, all_of_them
from tests.support.fleets.list_routes import ListedFleet, Rows
from tests.support.oracles.filter_oracle import expected_page, is_kept

ROUTES = {
    "index": Consistency.ANY,
    "cells": Consistency.STRONG,
    "mixed": Consistency.BOUNDED,
}


def check_that_all_routes_agree(fleet: ListedFleet, rows: Rows, request: PageRequest) -> None:
    """Index, cells, and one cell live beside the index of the others give the oracle's rows, page by page."""
    fleet.fill(rows)
    fleet.save_progress(CELLS[1], is_complete=False)
    records = all_of_them(rows)
    expected = expected_page(records, replace(request, limit=len(records) + 1), INSTANCE_FIELDS)
    uuids = [record["uuid"] for record in expected]
    answers: list[list[bytes]] = []
    for name, consistency in ROUTES.items():
        page_request = request
        found: list[str] = []
        items: list[bytes] = []
        while (listed := fleet.list(page_request, consistency)).uuids:
            assert listed.page.summary == name or (listed.page.summary == "cells" and is_beyond_the_index(request))
            assert listed.page.is_complete or name == "index"
            assert len(listed.uuids) <= request.limit
            found += listed.uuids
            items += listed.items
            page_request = fleet.behind(listed, request, consistency)
        assert found == uuids, name
        answers.append(items)
    assert answers[1:] == answers[:-1], "the routes render rows differently"


def check_that_all_routes_give_the_same_values(
    fleet: ListedFleet, rows: Rows, request: PageRequest, names: Sequence[str]
) -> None:
    """The values of some fields, page by page, are those that the rows were filled with."""
    fleet.fill(rows)
    fleet.save_progress(CELLS[1], is_complete=False)
    stored = {record["uuid"]: record for record in all_of_them(rows)}
    for name, consistency in ROUTES.items():
        page_request = request
        shown: list[str] = []
        while True:
            page, values = fleet.values(page_request, ("uuid", *names), consistency)
            assert page.rows == len(values)
            assert page.is_complete or name == "index"
            for uuid, *others in values:
                assert others == [stored[uuid][field] for field in names], name
            shown += [uuid for uuid, *_ in values]
            if page.last is None:
                break
            assert page.last == request.order.values(stored[shown[-1]])
            page_request = replace(request, after=page.last)
        assert shown == fleet.shown(request, consistency), name


def check_that_all_routes_count_alike(fleet: ListedFleet, rows: Rows, wanted: Filter, by: tuple[str, ...]) -> None:
    """The groups of each cell are those of its rows."""
    fleet.fill(rows)
    fleet.save_progress(CELLS[1], is_complete=False)
    expected: dict[str, Counter[tuple[Any, ...]]] = {cell.uuid: Counter() for cell in fleet.cells.values()}
    for name, records in rows.items():
        for record in (record for record in records if is_kept(wanted, record, INSTANCE_FIELDS)):
            groups: set[tuple[Any, ...]] = {()}
            for field in by:
                values = (record[field] or [None]) if isinstance(record[field], list) else [record[field]]
                groups = {(*group, value) for group in groups for value in values}
            expected[fleet.cells[name].uuid].update(groups)
    request = CountRequest(wanted, INSTANCE_FIELDS, by)
    for name, consistency in ROUTES.items():
        counted = fleet.counted(request, consistency)
        assert {uuid: counts.groups for uuid, counts in counted.by_cell.items()} == expected, name
        assert counted.total.groups == sum(expected.values(), Counter()), name
        assert counted.is_complete or name == "index"
        routes = {answer.cell.name: answer.route for answer in counted.cells}
        by_index = {"index": CELLS, "cells": (), "mixed": {*CELLS} - {CELLS[1]}}[name]
        if not is_beyond_the_index(PageRequest(wanted, SortOrder.of(INSTANCE_FIELDS, ()), 1)):
            assert {cell for cell, route in routes.items() if route is Route.INDEX} == {*by_index}


# What an index of Elasticsearch has in nice order.
_NICE = {"display_name", "node"}


def is_beyond_the_index(request: PageRequest) -> bool:
    """Whether some index cannot say exactly which rows satisfy the filter, or in which order, so the cells have to."""
    fields = request.item_type
    keys = request.order.keys
    if len({key.field for key in keys}) < len(keys):
        return True
    return any(key.collation is Collation.NICE and key.field not in _NICE for key in keys) or any(
        isinstance(leaf, HasAddress | LacksAddress)
        or (isinstance(leaf, HasName | HasOtherName) and len(leaf.name) > 255)
        or (isinstance(leaf, HasOneName) and max(map(len, leaf.names), default=0) > 255)
        or (isinstance(leaf, Matches | NotMatches) and fields[leaf.field].kind is not Kind.TEXT)
        for leaf in map(_without_not, leaves(request.filter))
    )


def _without_not(leaf: Leaf) -> Leaf:
    return leaf.leaf if isinstance(leaf, Not) else leaf


def check_paging_while_changes_arrive(fleet: ListedFleet, rows: Rows, order: SortOrder, limit: int, seed: int) -> None:
    """Untouched rows come exactly once, in order, while others change and each page has a route of its own."""
    generator = random.Random(seed)
    fleet.fill(rows)
    records = all_of_them(rows)
    restless = {record["uuid"] for record in records if generator.random() < 0.4}
    cell_of = {record["uuid"]: name for name, cell_rows in rows.items() for record in cell_rows}
    request = PageRequest(EVERYTHING, order, limit)
    page_request = request
    found: list[str] = []
    for _ in range(20 * len(records) + 20):
        consistency = generator.choice(list(ROUTES.values()))
        listed = fleet.list(page_request, consistency)
        if not listed.uuids:
            break
        found += listed.uuids
        if restless:
            _change(fleet, cell_of, generator.choice(sorted(restless)), generator)
        for name in CELLS:
            if generator.random() < 0.5:
                fleet.index_cell(name)
        page_request = fleet.behind(listed, request, consistency)
    else:
        raise AssertionError("the list does not end")
    calm = [record for record in records if record["uuid"] not in restless]
    expected = expected_page(calm, PageRequest(EVERYTHING, order, len(records) + 1), INSTANCE_FIELDS)
    assert [uuid for uuid in found if uuid not in restless] == [record["uuid"] for record in expected]


def _change(fleet: ListedFleet, cell_of: dict[str, str], uuid: str, generator: random.Random) -> None:
    operations = fleet.operations(cell_of[uuid])
    try:
        match generator.randrange(4):
            case 0:
                operations.update(uuid, {"display_name": generator.choice(("a", "zebra", "é"))})
            case 1:
                operations.stop(uuid)
            case 2:
                operations.move(uuid, generator.choice(("host3", "host4")))
            case _:
                operations.delete(uuid)
    except (InvalidTransitionError, InstanceNotFoundError):
        return

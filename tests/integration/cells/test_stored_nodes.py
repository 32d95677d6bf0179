"""Nodes as they are stored: whatever changes one raises its revision and is announced, with all that the row says."""

from collections.abc import Callable, Sequence
from contextlib import closing

import pytest
from sqlalchemy import Engine

from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.native.adapter import NativeAdapter
from fleetlight.cells.model import Cell, ItemRow
from fleetlight.indexer.transform.messages import interpret, read_headers
from fleetlight.indexer.transform.other_items import OtherItemChange
from tests.support.fleets.changing_nodes import ChangingNodes

Change = Callable[[ChangingNodes], object]


@pytest.fixture
def nodes(engine: Engine, fleet: Fleet, cell: Cell) -> ChangingNodes:
    nodes = ChangingNodes(engine, fleet, cell)
    nodes.add_group("rack7")
    return nodes


def rows(cell: Cell) -> dict[str, ItemRow]:
    with closing(NativeAdapter(cell)) as adapter:
        return {row.uuid: row for row in adapter.item_rows("node").rows}


# What is changed, and the revisions that are announced then, in their order.
CHANGES: Sequence[tuple[Change, Sequence[int]]] = (
    (lambda nodes: nodes.disable("host1", disabled=True), [2]),
    (lambda nodes: nodes.disable("host1", disabled=True), []),
    (lambda nodes: nodes.force_down("host1", forced_down=True), [3]),
    (lambda nodes: nodes.give_agent("host1", "host1:1811"), [4]),
    (lambda nodes: nodes.tag("host1", "fast"), [5]),
    (lambda nodes: nodes.untag("host1", "fast"), [6]),
    (lambda nodes: nodes.set_node("host1", vm_capable=False), [7]),
    # Its row, and its service.
    (lambda nodes: nodes.set_node("host1", drained=True), [8, 9]),
    (lambda nodes: nodes.assign("host1", "rack7"), [10]),
    (lambda nodes: nodes.rename_group("rack7", "rack8"), [11]),
    (lambda nodes: nodes.rename_group("default", "rack1"), [2]),
    (lambda nodes: nodes.set_group("rack1", spindle_count=3), [3]),
    (lambda nodes: nodes.set_cell(spindle_count=4), [12, 4]),
    (lambda nodes: nodes.find("host1", "down"), [13]),
    (lambda nodes: nodes.find("host1", "down"), []),
    (lambda nodes: nodes.find("host1", "up"), [14]),
)


def test_every_change_of_a_node_is_announced_with_its_revision(nodes: ChangingNodes) -> None:
    announced = [("hypervisor.create", 1)] * 2
    assert nodes.announced() == announced
    for change, revisions in CHANGES:
        change(nodes)
        announced += [("hypervisor.update", revision) for revision in revisions]
        assert nodes.announced() == announced


def test_announcement_says_what_the_row_says(nodes: ChangingNodes, cell: Cell) -> None:
    nodes.give_agent("host1", "host1:1811")
    nodes.set_group("default", spindle_count=3)
    nodes.set_node("host1", ndparams={"exclusive_storage": True}, secondary_ip="192.0.2.9")
    nodes.find("host1", "down")
    nodes.assign("host2", "rack7")
    told: dict[str, ItemRow] = {}
    for message in nodes.publish():
        _, revision, instance_uuid = read_headers(cell.uuid, message.headers)
        meaning = interpret(message.body, revision)
        if isinstance(meaning, OtherItemChange):
            assert instance_uuid is None, "a node is no instance"
            told[meaning.uuid] = ItemRow(meaning.uuid, meaning.revision, meaning.record)
    assert told == rows(cell)


def test_node_that_goes_is_announced_as_it_was(nodes: ChangingNodes, cell: Cell) -> None:
    before = rows(cell)
    nodes.remove("host1")
    [uuid] = before.keys() - rows(cell).keys()
    [message] = [each for each in nodes.publish() if b"hypervisor.delete" in each.body]
    change = interpret(message.body, read_headers(cell.uuid, message.headers)[1])
    assert isinstance(change, OtherItemChange)
    assert (change.uuid, change.revision) == (uuid, 2)
    assert change.record["deleted"]
    kept = {"deleted": True, "deleted_at": change.record["deleted_at"]}
    assert change.record == {**(before[uuid].record or {}), **kept}


def test_what_somebody_else_says_of_a_node_is_no_change_of_it(nodes: ChangingNodes) -> None:
    [message, *_] = [each for each in nodes.publish() if b"hypervisor.create" in each.body]
    assert not isinstance(interpret(message.body, None), OtherItemChange)

"""Whatever callers want in whatever order: revisions without gaps, allocations that add up, an index like the cell."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings
from sqlalchemy import select

from fleetlight.cells.errors import InstanceNotFoundError, NotResizedError, StateConflictError
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.cells.tables import allocations, changes, jobs
from fleetlight.indexer.transform.documents import NativeChange
from fleetlight.indexer.transform.messages import interpret
from fleetlight.indexer.transform.other_items import OtherItemChange
from fleetlight.manager.operations.actions.server_actions import ACTIONS
from fleetlight.manager.operations.scheduling.request_spec import demand_of
from fleetlight.query.filters import EVERYTHING
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import SortOrder
from fleetlight.resources.instance import INSTANCE_FIELDS
from tests.support.examples import examples
from tests.support.fleets.acting_cell import FLAVOR, REQUEST, ActingCell
from tests.support.fleets.cell_databases import native_cell

_BIGGER = {**FLAVOR, "flavorid": "m2", "name": "big", "memory_mb": 40_000}
_NAMES = sorted(ACTIONS.keys() - {"create"})
# What is wanted, of which instance, and how many steps workers do before the next wish.
_WISHES = st.lists(st.tuples(st.sampled_from(["create", *_NAMES]), st.integers(0, 3), st.integers(0, 12)), max_size=14)


@contextmanager
def acting_cell() -> Iterator[ActingCell]:
    with native_cell() as (engine, fleet, cell):
        yield ActingCell(engine, fleet, cell)


@settings(max_examples=examples(10), suppress_health_check=[HealthCheck.too_slow])
@given(_WISHES)
def test_any_order_of_actions_keeps_everything_in_step(specs: list[tuple[str, int, int]]) -> None:
    with acting_cell() as acting:
        uuids = [acting.instance(), acting.instance(vm_state="stopped", power_state=4)]
        for action, place, steps in specs:
            uuid = uuids[place % len(uuids)]
            try:
                if action == "create":
                    uuids.append(acting.acceptance.create([{"flavor": FLAVOR}], {}, REQUEST)[0].uuid)
                else:
                    acting.accept(uuid, action, flavor=_BIGGER if action == "resize" else None, flavor_number=2)
            except (StateConflictError, InstanceNotFoundError, NotResizedError):
                pass
            for _ in range(steps):
                acting.worker.run_once()
        acting.work()
        _check(acting)


def _check(acting: ActingCell) -> None:
    adapter = open_adapter(acting.cell)
    rows = {row.uuid: row for row in adapter.read_page(PageRequest(EVERYTHING, SortOrder.of(INSTANCE_FIELDS, ()), 100))}
    adapter.close()
    with acting.engine.connect() as connection:
        announced = connection.execute(select(changes).where(changes.c.revision > 0).order_by(changes.c.id)).all()
        assert connection.execute(select(jobs).where(jobs.c.ended_at.is_(None))).all() == []
        taken = connection.execute(select(allocations)).all()
    indexed: dict[str, NativeChange] = {}
    for change in announced:
        meaning = interpret(change.message, change.revision)
        if isinstance(meaning, OtherItemChange):  # of a node
            continue
        assert isinstance(meaning, NativeChange)
        known = indexed.get(meaning.uuid)
        assert meaning.revision == (1 if known is None else known.revision + 1)
        indexed[meaning.uuid] = meaning
    assert {uuid: (meaning.revision, meaning.record) for uuid, meaning in indexed.items()} == {
        uuid: (row.revision, row.record) for uuid, row in rows.items()
    }
    counts = Counter(row.instance_uuid for row in taken)
    for uuid, row in rows.items():
        record = row.record
        assert record["task_state"] is None
        # A resized instance still has its place on the host that it came from, until somebody confirms.
        if record["host"] is None or record["deleted"]:
            assert counts[uuid] == 0
        else:
            assert counts[uuid] == (2 if record["vm_state"] == "resized" else 1)
    held = {row.instance_uuid: row.memory_mib for row in taken if counts[row.instance_uuid] == 1}
    assert held == {uuid: demand_of(rows[uuid].record["flavor"]).memory_mib for uuid in held}

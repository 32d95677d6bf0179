"""Random fleets, filters, cells that go away, and a consumer that crashes: its copy, of instances or of nodes, is the
list, and has each change once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetlight.api.settings import ApiSettings
from fleetlight.cells.errors import CellUnreachableError
from tests.contract.compute_fleet import CELLS, MEMBER, Api, BrokenCells, ComputeFleet, compute_fleet
from tests.support.examples import examples
from tests.support.feed_consumer import Changed, FeedConsumer
from tests.support.fleets.changing_nodes import ChangingNodes

FIELDS = "uuid,serial_no,name,tags,be/memory"
FILTERS = (
    "",
    'name == "a1"',
    'name =* "a*"',
    '"blue" in tags',
    'be/memory > 1024 or not "blue" in tags',
    "serial_no == 2",
)
FLAVOR = {"flavorid": "1", "vcpus": 1, "root_gb": 1, "ephemeral_gb": 0}
KEYED = ApiSettings(watch_key="a secret of sixteen letters")

cells = st.sampled_from(CELLS)
names = st.sampled_from(["a1", "a2", "b1"])
tags = st.lists(st.just("blue"), max_size=1)
changes = st.one_of(
    st.tuples(st.just("create"), cells, names, tags, st.sampled_from([512, 4096])),
    st.tuples(st.just("rename"), st.integers(0, 9), names),
    st.tuples(st.just("tag"), st.integers(0, 9), tags),
    st.tuples(st.just("delete"), st.integers(0, 9)),
)
steps = st.one_of(
    changes,
    changes,
    st.just(("poll",)),
    st.just(("crash",)),
    st.just(("restart",)),
    st.tuples(st.just("away"), cells),
    st.tuples(st.just("back"), cells),
)


class Leaving(BrokenCells):
    """Cells of which some cannot be asked. away: their uuids. uuids: of all, by name."""

    def __init__(self, fleet: ComputeFleet) -> None:
        super().__init__(fleet)
        self.uuids = {name: cell.uuid for name, cell in fleet.cells.items()}
        self.away: set[str] = set()

    async def _misbehave(self, cell_uuid: str, timeout_s: float) -> None:
        if cell_uuid in self.away:
            raise CellUnreachableError(cell_uuid, "it is away")


class World:
    """A project of a fleet. changed: what was changed so far."""

    def __init__(self, fleet: ComputeFleet) -> None:
        self._fleet = fleet
        self._project = str(uuid4())
        self.headers = {**MEMBER, "X-Project-Id": self._project}
        self._instances: list[tuple[str, str]] = []
        self.changed: list[Changed] = []

    def change(self, action: str, *arguments: Any) -> None:
        if action == "create":
            cell, name, of_it, memory = arguments
            values = {"display_name": name, "tags": of_it, "flavor": FLAVOR | {"memory_mb": memory}}
            uuid = self._fleet.create(cell, **values, project_id=self._project)
            self._instances.append((cell, uuid))
            self.changed.append((uuid, 1))
        elif self._instances:
            self._change(action, arguments[0] % len(self._instances), *arguments[1:])
        self._fleet.number_changes()

    def _change(self, action: str, number: int, *values: Any) -> None:
        cell, uuid = self._instances[number]
        operations = self._fleet.operations(cell)
        if action == "delete":
            del self._instances[number]
            changed = operations.delete(uuid)
        else:
            changed = operations.update(uuid, {"display_name" if action == "rename" else "tags": values[0]})
        self.changed.append((uuid, changed.revision))


class Consumer(FeedConsumer):
    """One that asks the first of `apis`, processes of one API."""

    def __init__(
        self, apis: list[Api], headers: Mapping[str, str], text: str, *, what: str = "instance", fields: str = FIELDS
    ) -> None:
        super().__init__(lambda address, more: apis[0].get(address, headers, more), fields, what=what, filter=text)
        self.copy = self.new_copy()

    def begin(self, world: World, meanwhile: Sequence[Any]) -> None:
        """List what there is; more changes while pages are read."""
        left = list(meanwhile)
        rows = self.listed(limit=2, between_pages=lambda: world.change(*left.pop(0)) if left else None)
        self.copy = replace(self.copy, rows=rows)
        for change in left:
            world.change(*change)

    def check(self, pool: Leaving) -> None:
        """Whether it has what the list has, if it was told so since the last change."""
        if self.copy.is_complete and not pool.away:
            assert self.copy.rows == self.listed()

    def forget_completeness(self) -> None:
        """Something may have changed."""
        self.copy = replace(self.copy, is_complete=False)


def run(
    steps: Sequence[Any], consumers: Sequence[Consumer], pool: Leaving, apis: list[Api], change: Callable[..., None]
) -> None:
    """Carry out the steps, and check the copies after each poll and at the end."""
    for action, *arguments in steps:
        match action:
            case "poll" | "crash":
                for consumer in consumers:
                    consumer.poll(stores=action == "poll")
                    consumer.check(pool)
            case "restart":
                apis.reverse()
            case "away":
                pool.away.add(pool.uuids[arguments[0]])
            case "back":
                pool.away.discard(pool.uuids[arguments[0]])
            case _:
                change(action, *arguments)
                for consumer in consumers:
                    consumer.forget_completeness()
    pool.away.clear()
    for consumer in consumers:
        consumer.forget_completeness()
        while not consumer.copy.is_complete:
            consumer.poll(stores=True)
        consumer.check(pool)
        assert len(consumer.copy.changes) == len(set(consumer.copy.changes)), "each change once"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComputeFleet]:
    with compute_fleet(tmp_path_factory.mktemp("fleet")) as made:
        yield made


# Each example has a project of its own, so they may share a fleet.
@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(
    before=st.lists(changes, max_size=5),
    meanwhile=st.lists(changes, max_size=3),
    after=st.lists(steps, max_size=12),
    shape=st.tuples(st.sampled_from(FILTERS), st.integers(1, 4)),
)
def test_copy_of_a_consumer_is_the_list_whenever_the_feed_says_that_it_is_complete(
    fleet: ComputeFleet,
    monkeypatch: pytest.MonkeyPatch,
    *,
    before: Sequence[Any],
    meanwhile: Sequence[Any],
    after: Sequence[Any],
    shape: tuple[str, int],
) -> None:
    text, size = shape
    monkeypatch.setattr("fleetlight.api.changes.routes.MAX_CHANGES", size)
    pool = Leaving(fleet)
    apis = [fleet.api(pool=pool, settings=KEYED) for _ in range(2)]
    world = World(fleet)
    for change in before:
        world.change(*change)
    consumers = filtered, whole = Consumer(apis, world.headers, text), Consumer(apis, world.headers, "")
    known = len(world.changed)
    filtered.begin(world, meanwhile)
    whole.begin(world, ())
    run(after, consumers, pool, apis, world.change)
    assert sorted(whole.copy.changes) == sorted(world.changed[known:]), "none is missing"


hosts = st.integers(0, 4)
node_steps = st.one_of(
    st.tuples(st.sampled_from(["add", "remove", "down", "up", "drain"]), cells, hosts),
    st.tuples(st.sampled_from(["down", "up"]), cells, hosts),
    st.just(("poll",)),
    st.just(("crash",)),
    st.just(("restart",)),
    st.tuples(st.sampled_from(["away", "back"]), cells),
)


class Nodes:
    """The nodes of a fleet, which all examples share."""

    def __init__(self, fleet: ComputeFleet) -> None:
        self._fleet = fleet
        self._cells = {
            name: ChangingNodes(fleet.engine(name), fleet.fleet, cell, ()) for name, cell in fleet.cells.items()
        }
        self._hosts: dict[str, list[str]] = {name: [] for name in self._cells}

    def change(self, action: str, cell: str, number: int) -> None:
        nodes, known = self._cells[cell], self._hosts[cell]
        if action == "add" or not known:
            known.append(f"{cell}-{uuid4()}")
            nodes.add(known[-1])
        elif action == "remove":
            nodes.remove(known.pop(number % len(known)))
        elif action == "drain":
            nodes.disable(known[number % len(known)], disabled=number % 2 == 0)
        else:
            nodes.force_down(known[number % len(known)], forced_down=action == "down")
        self._fleet.number_changes()


@pytest.fixture(scope="module")
def nodes(fleet: ComputeFleet) -> Nodes:
    return Nodes(fleet)


@settings(max_examples=examples(8), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(node_steps, min_size=4, max_size=14), text=st.sampled_from(["offline", 'role == "R"', "not drained"])
)
def test_copy_of_the_nodes_is_the_list_whenever_the_feed_says_that_it_is_complete(
    fleet: ComputeFleet, nodes: Nodes, steps: Sequence[Any], text: str
) -> None:
    pool = Leaving(fleet)
    apis = [fleet.api(pool=pool, settings=KEYED) for _ in range(2)]
    fields = "uuid,serial_no,name,offline,drained,role,cell"
    consumers = [Consumer(apis, {}, each, what="node", fields=fields) for each in (text, "")]
    for consumer in consumers:
        consumer.begin_anew()
    run(steps, consumers, pool, apis, nodes.change)

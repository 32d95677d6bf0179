"""Random changes, and the list as of a random moment among them: what was written down when it was so."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetlight.resources.clock import system_clock
from tests.contract.compute_fleet import CELLS, MEMBER, ComputeFleet
from tests.contract.test_as_of import fleet
from tests.support.examples import examples

__all__ = ["fleet"]

State = dict[str, dict[str, Any]]
"""By uuid: the name, tags and memory of an instance that is there."""
Wanted = Callable[[Mapping[str, Any]], bool]

FILTERS: Mapping[str, Wanted] = {
    "": lambda _instance: True,
    'name == "a1"': lambda instance: instance["name"] == "a1",
    'name =* "a*"': lambda instance: instance["name"].startswith("a"),
    '"blue" in tags': lambda instance: "blue" in instance["tags"],
    "be/memory > 1024": lambda instance: instance["memory"] > 1024,
    'be/memory > 1024 or not "blue" in tags': lambda instance: (
        instance["memory"] > 1024 or "blue" not in instance["tags"]
    ),
}
ORDERS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "uuid": lambda instance: instance["uuid"],
    "name": lambda instance: (instance["name"], instance["uuid"]),
    "-name": lambda instance: ([-ord(letter) for letter in instance["name"]], instance["uuid"]),
}
names = st.sampled_from(["a1", "a2", "b1", "b2"])
tags = st.lists(st.sampled_from(["blue", "red"]), unique=True, max_size=2)
changes = st.one_of(
    st.tuples(st.just("create"), st.sampled_from(CELLS), names, tags, st.sampled_from([512, 4096])),
    st.tuples(st.just("rename"), st.integers(0, 9), names),
    st.tuples(st.just("tag"), st.integers(0, 9), tags),
    st.tuples(st.just("delete"), st.integers(0, 9)),
)
questions = st.tuples(st.sampled_from(sorted(FILTERS)), st.sampled_from(sorted(ORDERS)), st.integers(1, 4))


# Each example has a project of its own, so they may share a fleet.
@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(done=st.lists(changes, min_size=3, max_size=14), at=st.integers(0, 14), question=questions)
def test_list_as_of_a_moment_is_what_was_written_down_then(
    fleet: ComputeFleet, done: Sequence[Sequence[Any]], at: int, question: tuple[str, str, int]
) -> None:
    wanted, order, limit = question
    project = uuid4().hex
    states = list(_states(fleet, project, done))
    moment, then = states[min(at, len(states) - 1)]
    expected = sorted(filter(FILTERS[wanted], then.values()), key=ORDERS[order])
    assert _listed(fleet, project, moment, {"filter": wanted, "order": order, "limit": str(limit)}) == [
        [instance["uuid"], instance["name"], instance["tags"], instance["memory"]] for instance in expected
    ]


def _states(fleet: ComputeFleet, project: str, done: Sequence[Sequence[Any]]) -> Iterator[tuple[int, State]]:
    """Each state with a moment at which it was so, while the changes are made."""
    state: State = {}
    cells: dict[str, str] = {}
    yield system_clock(), {}
    for kind, *how in done:
        if kind == "create":
            cell, name, tag_names, memory = how
            flavor = {"flavorid": "1", "name": "f", "memory_mb": memory, "vcpus": 1, "root_gb": 1, "ephemeral_gb": 0}
            given_values = {"display_name": name, "tags": tag_names, "flavor": flavor | {"swap": 0}}
            uuid = fleet.create(cell, project_id=project, **given_values)
            cells[uuid] = cell
            state[uuid] = {"uuid": uuid, "name": name, "tags": tag_names, "memory": memory}
        elif state:
            uuid = sorted(state)[how[0] % len(state)]
            operations = fleet.operations(cells[uuid])
            match kind:
                case "rename":
                    operations.update(uuid, {"display_name": how[1]})
                    state[uuid] = state[uuid] | {"name": how[1]}
                case "tag":
                    operations.update(uuid, {"tags": how[1]})
                    state[uuid] = state[uuid] | {"tags": how[1]}
                case "delete":
                    operations.delete(uuid)
                    del state[uuid]
        yield system_clock(), dict(state)


def _listed(fleet: ComputeFleet, project: str, moment: int, parameters: Mapping[str, str]) -> list[list[Any]]:
    """All pages of the list, as a member of the project sees it."""
    member = {**MEMBER, "X-Project-Id": project}
    asked = {"fields": "uuid,name,tags,be/memory", "as_of": datetime.fromtimestamp(moment / 1e6, UTC).isoformat()}
    api = fleet.api()
    found: list[list[Any]] = []
    marker: dict[str, str] = {}
    while True:
        response = api.get(f"/fleetlight/query?{urlencode({**asked, **parameters, **marker})}", member)
        assert response.status_code == 200, response.text
        assert response.headers["fleetlight-complete"] == "true"
        page = response.json()
        assert all(status == 0 for row in page["data"] for status, _ in row)
        found += [[value for _, value in row] for row in page["data"]]
        if page["marker"] is None:
            return found
        marker = {"marker": page["marker"]}

"""Random histories of instances, and what they used: counted minute by minute from what was written down."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetlight.resources.clock import system_clock
from fleetlight.resources.fields import from_microseconds
from tests.contract.compute_fleet import CELLS, MEMBER, ComputeFleet
from tests.property.test_as_of import fleet
from tests.support.examples import examples
from tests.support.fleets.instance_operations import InstanceOperations

__all__ = ["fleet"]

MINUTE = 60_000_000
BEGIN = (system_clock() // MINUTE - 20 * 24 * 60) * MINUTE
# vCPUs, GiB of memory, GiB of disk.
SIZES = {"small": (1, 2, 10), "large": (8, 64, 160)}
NAMES = ("instance_hours", "vcpu_hours", "memory_gib_hours", "disk_gib_hours")

State = Mapping[str, tuple[str, str]]
"""By uuid of what is there: `` or `reserved_`, and the name of the size."""
sizes = st.sampled_from(sorted(SIZES))
changes = st.one_of(
    st.tuples(st.sampled_from(["create", "reserve"]), st.sampled_from(CELLS), sizes),
    st.tuples(st.just("resize"), st.integers(0, 9), sizes),
    st.tuples(st.sampled_from(["make real", "relaunch", "rename", "delete"]), st.integers(0, 9), st.none()),
)
histories = st.lists(st.tuples(st.integers(0, 90), changes), min_size=2, max_size=12)
minutes = st.integers(0, 500)


# Each example has a project of its own, so they may share a fleet.
@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(history=histories, start=minutes, length=st.integers(1, 500))
def test_usage_is_what_is_counted_minute_by_minute(
    fleet: ComputeFleet, history: Sequence[tuple[int, Sequence[Any]]], start: int, length: int
) -> None:
    project = uuid4().hex
    states = _states(fleet, project, history)
    answer = _asked(fleet, project, BEGIN + start * MINUTE, BEGIN + (start + length) * MINUTE)
    assert answer["exact"]
    counted = {
        (row["flavor"], f"{prefix}{name}"): round(row[f"{prefix}{name}"] * 60, 6)
        for row in answer["usage"]
        for prefix in ("", "reserved_")
        for name in NAMES
        if row[f"{prefix}{name}"]
    }
    assert counted == _counted(states, range(start, start + length))


def _counted(states: Mapping[int, State], period: Sequence[int]) -> Mapping[tuple[str, str], float]:
    """By size and name the minutes, times what instances had in each of them."""
    counted = Counter[tuple[str, str]]()
    for minute in period:
        now: State = states[max(known for known in states if known <= minute)]
        for prefix, size in now.values():
            for name, amount in zip(NAMES, (1, *SIZES[size]), strict=True):
                counted[size, f"{prefix}{name}"] += amount
    return dict(counted)


def _states(fleet: ComputeFleet, project: str, history: Sequence[tuple[int, Sequence[Any]]]) -> Mapping[int, State]:
    """What is there from each minute on at which something was changed."""
    now = 0
    operations = {
        cell: InstanceOperations(fleet.engine(cell), fleet.fleet, fleet.cells[cell], lambda: BEGIN + now * MINUTE)
        for cell in CELLS
    }
    state: dict[str, tuple[str, str]] = {}
    places: dict[str, InstanceOperations] = {}
    states: dict[int, State] = {0: {}}
    for pause, (kind, which, size) in history:
        now += pause
        if kind in {"create", "reserve"}:
            is_reserved = kind == "reserve"
            values = {"project_id": project, "user_id": "ada", "flavor": _flavor(size), "forthcoming": is_reserved}
            launched = {"launched_at": None} if is_reserved else {}
            uuid = operations[which].create(values | launched).uuid
            state[uuid] = ("reserved_" if is_reserved else "", size)
            places[uuid] = operations[which]
        elif state:
            uuid = sorted(state)[which % len(state)]
            changed, then = _changed(state.pop(uuid), kind, size, BEGIN + now * MINUTE)
            if then is None:
                places[uuid].delete(uuid)
            else:
                places[uuid].update(uuid, changed)
                state[uuid] = then
        states[now] = dict(state)
    return states


def _changed(
    before: tuple[str, str], kind: str, size: str, now: int
) -> tuple[Mapping[str, Any], tuple[str, str] | None]:
    """What a change sets, and what there is then; None: nothing any more."""
    prefix, old_size = before
    match kind:
        case "delete":
            return {}, None
        case "resize":
            return {"flavor": _flavor(size)}, (prefix, size)
        case "make real":
            return {"forthcoming": False, "launched_at": now}, ("", old_size)
        case "relaunch" if not prefix:
            return {"launched_at": now}, before
        case _:
            return {"display_name": "other"}, before


def _flavor(size: str) -> Mapping[str, Any]:
    vcpus, memory_gib, disk_gib = SIZES[size]
    sizes = {"vcpus": vcpus, "memory_mb": memory_gib * 1024, "root_gb": disk_gib - 1, "ephemeral_gb": 1, "swap": 0}
    others = {"rxtx_factor": 1.0, "vcpu_weight": 0, "disabled": False, "is_public": True, "extra_specs": {}}
    return {"flavorid": size, "name": size, **sizes, **others, "projects": None, "description": None}


def _asked(fleet: ComputeFleet, project: str, start: int, stop: int) -> Any:
    asked = {"from": from_microseconds(start).isoformat(), "to": from_microseconds(stop).isoformat(), "by": "flavor"}
    response = fleet.api().get(f"/fleetlight/usage?{urlencode(asked)}", {**MEMBER, "X-Project-Id": project})
    assert response.status_code == 200, response.text
    assert response.headers["fleetlight-complete"] == "true"
    return response.json()

"""Taking instances off a node over Ganeti's remote API: each by a job of its own."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fleetlight.resources.power_states import RUNNING, SHUT_DOWN
from fleetlight.resources.query_fields.ganeti import kept_in_part
from tests.contract.compute_fleet import ComputeFleet, compute_fleet
from tests.support.rapi_calls import RapiCalls


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ComputeFleet]:
    """Two nodes; on the first one an instance that runs, one that does not, and a reservation, all mirrored."""
    with compute_fleet(tmp_path) as fleet:
        fleet.add_hosts()
        mirrored = kept_in_part({"disk_template": "drbd", "snodes": ["east-host1"]})
        for name, given in (
            ("runs", {"power_state": RUNNING}),
            ("rests", {"power_state": SHUT_DOWN, "vm_state": "stopped"}),
            ("comes", {"power_state": None, "vm_state": "building", "forthcoming": True}),
        ):
            where = {"node": "east-host0", "host": "east-host0", "ganeti": mirrored}
            fleet.create("east", display_name=f"{name}.example.com", **where, **given)
        yield fleet


@pytest.fixture
def rapi(fleet: ComputeFleet) -> RapiCalls:
    return RapiCalls(fleet, fleet.api(), "/cells/east/2")


def jobs_of(rapi: RapiCalls, path: str, body: Any) -> Sequence[Any]:
    """The operation of each job that a request has submitted, in the order of their summaries."""
    told = rapi.result("POST", path, body)
    assert told.keys() == {"jobs"}
    assert all(accepted is True for accepted, _ in told["jobs"])
    found = sorted((rapi.job(number) for _, number in told["jobs"]), key=lambda job: job["summary"][0])
    for job in found:
        assert job["summary"] == [f"{job['ops'][0]['OP_ID'][3:]}({job['ops'][0]['instance_name']})"]
    return [job["ops"][0] for job in found]


def without_trail(op: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in op.items() if name != "reason"}


def test_each_instance_leaves_the_node_by_a_job_of_its_own(rapi: RapiCalls) -> None:
    ops = jobs_of(rapi, "/nodes/east-host0/evacuate?reason=disk", {"mode": "primary-only"})
    assert [without_trail(op) for op in ops] == [
        {"OP_ID": "OP_INSTANCE_FAILOVER", "instance_name": "comes.example.com"},
        {"OP_ID": "OP_INSTANCE_FAILOVER", "instance_name": "rests.example.com"},
        {"OP_ID": "OP_INSTANCE_MIGRATE", "instance_name": "runs.example.com", "allow_failover": True},
    ]
    assert [op["reason"][0][:2] for op in ops] == [["gnt:user", "disk"]] * 3


@pytest.mark.parametrize(
    ("body", "chosen"),
    [({"remote_node": "east-host0"}, {"remote_node": "east-host0"}), ({}, {"iallocator": "hail"})],
)
def test_mirrors_leave_the_node_as_well(rapi: RapiCalls, body: Any, chosen: Any) -> None:
    ops = jobs_of(rapi, "/nodes/east-host1/evacuate", {"mode": "secondary-only", **body})
    assert [without_trail(op) for op in ops] == [
        {
            "OP_ID": "OP_INSTANCE_REPLACE_DISKS",
            "instance_name": f"{name}.example.com",
            "mode": "replace_new_secondary",
            **chosen,
        }
        for name in ("comes", "rests", "runs")
    ]


def test_node_without_instances_needs_no_job(rapi: RapiCalls) -> None:
    assert rapi.result("POST", "/nodes/east-host1/evacuate", {"mode": "primary-only"}) == {"jobs": []}
    assert rapi.result("POST", "/nodes/east-host1/migrate", {}) == {"jobs": []}


def test_instances_migrate_as_it_was_asked_for(rapi: RapiCalls) -> None:
    ops = jobs_of(rapi, "/nodes/east-host0/migrate", {"target_node": "east-host1", "mode": "non-live"})
    to = {"target_node": "east-host1", "ignore_ipolicy": False}
    of_guests = {"OP_ID": "OP_INSTANCE_MIGRATE", **to, "mode": "non-live", "allow_runtime_changes": True}
    assert [without_trail(op) for op in ops] == [
        {"OP_ID": "OP_INSTANCE_FAILOVER", "instance_name": "comes.example.com", **to},
        {**of_guests, "instance_name": "rests.example.com"},
        {**of_guests, "instance_name": "runs.example.com"},
    ]


def test_trial_run_submits_nothing(rapi: RapiCalls) -> None:
    assert rapi.result("POST", "/nodes/east-host0/evacuate?dry-run=1", {"mode": "all"}) is None
    assert len(rapi.get("/jobs")) == 1


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        ("evacuate", {"mode": "primary-only", "remote_node": "east-host1"}, "use an iallocator"),
        ("evacuate", {"mode": "secondary-only", "remote_node": "east-host0"}, "Can not use evacuated node"),
        (
            "evacuate",
            {"mode": "secondary-only", "remote_node": "east-host1", "iallocator": "hail"},
            "Do not specify both",
        ),
        ("migrate", {"target_node": "east-host1", "iallocator": "hail"}, "Do not specify both"),
    ],
)
def test_what_contradicts_itself_ends_the_job(rapi: RapiCalls, path: str, body: Any, text: str) -> None:
    failed, why = rapi.failure("POST", f"/nodes/east-host0/{path}", body)
    assert (text in failed, why) == (True, "wrong_input"), failed


def test_old_form_of_a_migration_has_its_mode_in_the_address(rapi: RapiCalls) -> None:
    job = rapi.run("POST", "/nodes/east-host1/migrate?live=0", {"mode": "live"})
    assert (job["status"], job["ops"][0]["mode"]) == ("success", "non-live")
    assert rapi.refusal("POST", "/nodes/east-host1/migrate?live=1&mode=live", {})[0] == 400
    assert rapi.refusal("POST", "/nodes/east-host1/evacuate", {})[0] == 400

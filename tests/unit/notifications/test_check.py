import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleetlight.notifications.check import CheckReport, check_file
from fleetlight.notifications.envelope import encode
from fleetlight.notifications.event_types import INSTANCE_CREATE_END, PAYLOADS_OF_EVENT, is_well_formed
from tests.contract.payload_samples import samples
from tests.support.played.nova_cell import MemoryNovaCell

SAMPLE = samples()[INSTANCE_CREATE_END]
Check = Callable[[object], CheckReport]


@pytest.fixture
def check(tmp_path: Path) -> Check:
    def write_and_check(content: object) -> CheckReport:
        path = tmp_path / "notification.json"
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return check_file(path)

    return write_and_check


def _bare(**changes: Any) -> dict[str, Any]:
    return {
        "event_type": SAMPLE.event_type,
        "payload": SAMPLE.payload,
        "priority": SAMPLE.priority,
        "publisher_id": SAMPLE.publisher_id,
    } | changes


def _with_flavor(payload: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The payload with another wrapper around its flavor."""
    data = payload["nova_object.data"]
    return payload | {"nova_object.data": data | {"flavor": data["flavor"] | changes}}


def test_all_three_forms_are_valid(check: Check) -> None:
    enveloped = encode(SAMPLE)
    for content in (_bare(), json.loads(json.loads(enveloped)["oslo.message"]), enveloped):
        report = check(content)
        assert report.is_valid, report
        assert (report.event_type, report.payload) == (INSTANCE_CREATE_END, "InstancePayload 1.1")


@pytest.mark.parametrize(
    ("content", "where", "what"),
    [
        (b"{", "message", "is not JSON"),
        (b"[1]", "message", "must be object, not array"),
        (_bare(priority="info"), "priority", "must be one of AUDIT, CRITICAL"),
        (_bare(publisher_id="compute.host7"), "publisher_id", "must be service:host"),
        (_bare(event_type="Instance Create"), "event_type", "must be object.action"),
        (_bare(event_type="service.update"), "event_type", "carries nova ServiceStatusPayload, not fleetlight"),
        (_bare(payload={}), "payload", "is not a versioned object"),
        (_bare(payload=SAMPLE.payload | {"nova_object.name": "X"}), "payload.nova_object.name", "no payload 'X'"),
        (_bare(payload=SAMPLE.payload | {"nova_object.version": "2.0"}), "payload.nova_object.version", "2.0 is not"),
        (_bare(payload=SAMPLE.payload | {"nova_object.version": "1.x"}), "payload.nova_object.version", "not '1.x'"),
        (
            _bare(payload=_with_flavor(SAMPLE.payload, {"nova_object.version": "2.0"})),
            "payload.flavor.nova_object.version",
            "FlavorPayload 2.0 is not supported",
        ),
        (
            _bare(payload=_with_flavor(SAMPLE.payload, {"nova_object.version": "x"})),
            "payload.flavor",
            "'x' is not a version: MAJOR.MINOR is needed",
        ),
        (
            _bare(payload=SAMPLE.payload | {"nova_object.data": SAMPLE.payload["nova_object.data"] | {"flavor": 1}}),
            "payload.flavor",
            "an object wrapped as FlavorPayload is needed",
        ),
    ],
)
def test_problem_is_reported_with_its_place(check: Check, content: object, where: str, what: str) -> None:
    (problem,) = check(content).problems
    assert problem.where == where
    assert what in problem.what


def test_all_problems_are_reported_at_once(check: Check) -> None:
    data = SAMPLE.payload["nova_object.data"] | {"uuid": "x", "locked": "no"}
    report = check(_bare(priority="info", payload=SAMPLE.payload | {"nova_object.data": data}))
    assert [problem.where for problem in report.problems] == ["priority", "payload.uuid", "payload.locked"]


def test_unknown_event_type_with_a_known_payload_is_valid(check: Check) -> None:
    assert check(_bare(event_type="instance.teleport.end")).is_valid


@pytest.mark.parametrize("action", ["create", "snapshot", "rebuild"])
def test_events_of_older_releases_of_nova_are_valid(check: Check, action: str) -> None:
    """With these they sent the payload of other actions, before there was one of their own; the indexer takes both."""
    cell = MemoryNovaCell()
    seen = cell.snapshot(cell.create())
    assert check(cell.notify(seen, f"instance.{action}.end").body).is_valid
    assert not check(cell.notify(seen, "instance.exists").body).is_valid


def test_file_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    (problem,) = check_file(tmp_path / "missing.json").problems
    assert str(problem) == "file: cannot be read: No such file or directory"


def test_all_known_event_types_are_well_formed() -> None:
    assert all(is_well_formed(event_type) for event_type in PAYLOADS_OF_EVENT)

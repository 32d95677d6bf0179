"""Samples are the contract: Nova's (where they are), and our own, which are committed."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleetlight.notifications.check import check_file, find_problems
from fleetlight.notifications.envelope import decode, encode, read_sample
from fleetlight.notifications.event_types import PAYLOADS_OF_EVENT
from fleetlight.notifications.registry import REGISTRY, export_schemas, parse_payload
from tests.contract.payload_fingerprints import committed, current
from tests.contract.payload_samples import DIRECTORY, render, sample_path, samples

NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)


@pytest.fixture
def nova_samples(samples_dir: Path) -> list[Path]:
    files = sorted((samples_dir / "nova" / "notifications").glob("*.json"))
    assert files
    return files


def test_every_nova_sample_is_equal_after_a_round_trip(nova_samples: list[Path]) -> None:
    for path in nova_samples:
        notification = read_sample(path.read_bytes(), NOW)
        assert parse_payload(notification.payload).wrap() == json.loads(path.read_bytes())["payload"], path.name


def test_every_nova_sample_is_valid(nova_samples: list[Path]) -> None:
    for path in nova_samples:
        report = check_file(path)
        assert report.is_valid, report
        assert report.event_type in PAYLOADS_OF_EVENT


def test_every_nova_sample_survives_the_envelope(nova_samples: list[Path]) -> None:
    for path in nova_samples:
        notification = read_sample(path.read_bytes(), NOW)
        assert decode(encode(notification)) == notification


def test_nova_sample_without_a_required_field_is_refused_by_name(nova_samples: list[Path]) -> None:
    for path in nova_samples:
        notification = read_sample(path.read_bytes(), NOW)
        data = dict(notification.payload["nova_object.data"])
        del data["display_name"]
        broken = replace(notification, payload=notification.payload | {"nova_object.data": data})
        assert [problem.where for problem in find_problems(broken)] == ["payload.display_name"], path.name


@pytest.mark.parametrize("event_type", samples())
def test_own_sample_is_what_the_producer_makes(event_type: str) -> None:
    assert sample_path(event_type).read_text(encoding="utf-8") == render(samples()[event_type])


def test_there_is_no_other_own_sample() -> None:
    assert set(DIRECTORY.glob("*.json")) == {sample_path(event_type) for event_type in samples()}


@pytest.mark.parametrize("event_type", samples())
def test_own_sample_is_valid_and_equal_after_a_round_trip(event_type: str) -> None:
    path = sample_path(event_type)
    assert check_file(path).problems == ()
    notification = decode(path.read_bytes())
    assert parse_payload(notification.payload).wrap() == notification.payload


def test_payload_fields_change_only_with_a_new_version() -> None:
    known = committed()
    for payload, fingerprint in current().items():
        assert payload in known, f"{payload} is new: run python -m tests.contract.payload_fingerprints"
        assert known[payload] == fingerprint, f"the fields of {payload} changed: give it a new version"


def test_every_event_type_has_a_registered_payload() -> None:
    registered = {(payload.NAMESPACE, payload.NAME) for payload in REGISTRY.newest()}
    for payloads in PAYLOADS_OF_EVENT.values():
        assert payloads <= registered


def test_schemas_are_exported_for_every_payload(tmp_path: Path) -> None:
    written = export_schemas(tmp_path)
    assert len(written) == len(list(REGISTRY.newest()))
    schema = json.loads((tmp_path / "fleetlight" / "InstancePayload-1.1.json").read_text(encoding="utf-8"))
    data = schema["properties"]["nova_object.data"]
    assert schema["properties"]["nova_object.name"] == {"const": "InstancePayload"}
    assert "tenant_id" in data["required"]
    assert "project_id" not in data["properties"]

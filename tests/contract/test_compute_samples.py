"""Answers have the shape of the third-party samples, at every microversion and by every route."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.contract.answering import Asked
from tests.contract.compute_fleet import MEMBER, ComputeFleet, microversion

pytestmark = pytest.mark.samples

OWNED_BY_USERS = {"metadata", "addresses", "extra_specs", "properties", "scheduler_hints"}
PROJECT = "6f70656e737461636b20342065766572"


def fill(fleet: ComputeFleet) -> None:
    fleet.create("north", **_VALUES)


def test_lists_have_the_shape_of_the_samples(asked: Asked, samples_dir: Path) -> None:
    samples = sorted(samples_dir.glob("nova/api/servers/**/servers-*-resp.json"))
    assert samples
    for sample in samples:
        expected = json.loads(sample.read_text())
        if any(server.get("status") == "UNKNOWN" for server in expected["servers"]):
            continue  # of a cell that is down: test_compute_failures
        path = "servers/detail" if "details" in sample.name else "servers"
        path += "?limit=1" if "servers_links" in expected else ""
        audience = _audience(expected["servers"][0])
        actual = asked.get(f"/v2.1/{PROJECT}/{path}", _version_of(sample), audience, {"X-Project-Id": PROJECT})
        assert _differences(expected, actual.json(), str(sample.relative_to(samples_dir))) == []
        is_member = bool(audience)
        assert actual.headers["Fleetlight-Route"].startswith(asked.summary if is_member else "east=")


def test_servers_have_the_shape_of_the_samples(asked: Asked, samples_dir: Path) -> None:
    (uuid,) = asked.api.ids("/v2.1/servers", {"X-Project-Id": PROJECT})
    samples = sorted(samples_dir.glob("nova/api/servers/**/server-get-resp.json"))
    assert samples
    for sample in samples:
        expected = json.loads(sample.read_text())
        if expected["server"]["status"] == "UNKNOWN":
            continue
        url = f"/v2.1/{PROJECT}/servers/{uuid}"
        actual = asked.get(url, _version_of(sample), _audience(expected["server"]), {"X-Project-Id": PROJECT})
        assert _differences(expected, actual.json(), str(sample.relative_to(samples_dir))) == []


def _version_of(sample: Path) -> dict[str, str]:
    match = re.fullmatch(r"v(2\.\d+)", sample.parent.name)
    return microversion(match[1] if match else "2.1")


def _audience(server: dict[str, Any]) -> dict[str, str]:
    """Samples are of administrators and of others; who it was shows in what was shown."""
    return {} if "OS-EXT-SRV-ATTR:host" in server else MEMBER


def _differences(expected: Any, actual: Any, where: str) -> list[str]:
    """Where keys or types differ. Nulls and empty lists have the shape of whatever could be there."""
    match expected, actual:
        case dict(), dict():
            unshared = expected.keys() ^ actual.keys()
            differences = [f"{where}: {key} is missing or too much" for key in unshared]
            for key in (expected.keys() & actual.keys()) - OWNED_BY_USERS:
                differences += _differences(expected[key], actual[key], f"{where}.{key}")
            return differences
        case [first, *_], [other, *_]:
            return _differences(first, other, f"{where}[]")
        case (None, _) | (_, None):
            return []
    return [] if type(expected) is type(actual) else [f"{where}: {expected!r} and {actual!r}"]


_VALUES: dict[str, Any] = {
    "project_id": PROJECT,
    "user_id": "fake",
    "display_name": "new-server-test",
    "display_description": "",
    "host": "compute",
    "availability_zone": "us-west",
    "pinned_availability_zone": "us-west",
    "updated_at": 1_700_000_000_000_000,
    "metadata": {"My Server Name": "Apache1"},
    "access_ip_v4": "1.2.3.4",
    "access_ip_v6": "80fe::",
    "auto_disk_config": True,
    "image_ref": "70a599e0-31e7-49b7-b260-868f441e862b",
    "image_properties": {"architecture": "x86_64"},
    "flavor": {
        "flavorid": "1",
        "name": "m1.tiny",
        "memory_mb": 512,
        "vcpus": 1,
        "root_gb": 1,
        "ephemeral_gb": 0,
        "swap": 0,
    },
    "ip_addresses": [{"label": "private", "address": "192.168.1.30", "version": 4, "mac": "00:0c:29:0d:11:74"}],
    "block_devices": [{"volume_id": "7a1d5a0a-90b1-4f36-8f6e-1e2d3c4b5a69"}],
    "security_groups": ["default"],
    "server_groups": ["f3d86fe6-4246-4be8-b87c-eb894626c741"],
    "scheduler_hints": {"same_host": ["48e6a9f6-30af-47e0-bc04-acaed113bb4e"]},
}

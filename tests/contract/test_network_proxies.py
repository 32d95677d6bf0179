"""What clients are told that look something up which only another service has."""

import pytest

from tests.contract.compute_fleet import Api, microversion

_NETWORK = "This fleet has no network service, and so no {} to look up."
_VOLUME = "This fleet has no volume service, and so no {} to look up."
_KINDS = {
    "os-networks": ("networks", _NETWORK.format("networks")),
    "os-tenant-networks": ("networks", _NETWORK.format("networks")),
    "os-security-groups": ("security_groups", _NETWORK.format("security groups")),
    "os-floating-ips": ("floating_ips", _NETWORK.format("floating addresses")),
    "os-volumes": ("volumes", _VOLUME.format("volumes")),
    "os-snapshots": ("snapshots", _VOLUME.format("snapshots")),
    "os-baremetal-nodes": ("nodes", "This fleet has no bare metal service, and so no nodes to look up."),
}


@pytest.mark.parametrize(
    ("path", "key"),
    [
        *((collection, key) for collection, (key, _) in _KINDS.items()),
        ("os-floating-ip-pools", "floating_ip_pools"),
        ("os-volumes/detail", "volumes"),
        ("os-snapshots/detail", "snapshots"),
        ("os-volumes/detail?limit=1&all_tenants=1", "volumes"),
        ("os-floating-ips?all_tenants=1", "floating_ips"),
    ],
)
def test_list_of_what_no_service_has_is_empty_until_2_35(api: Api, path: str, key: str) -> None:
    """Prometheus' discovery of instances asks for floating addresses at 2.1, and ends if it gets no list."""
    for version in ("2.1", "2.35"):
        answer = api.get(f"/v2.1/{path}", microversion(version))
        assert (answer.status_code, answer.json()) == (200, {key: []})
    newer = api.get(f"/v2.1/{path}", microversion("2.36"))
    assert (newer.status_code, list(newer.json())) == (404, ["itemNotFound"])


@pytest.mark.parametrize(("collection", "text"), [(name, text) for name, (_, text) in _KINDS.items()])
def test_one_thing_of_another_service_is_not_found_and_the_reason_is_said(api: Api, collection: str, text: str) -> None:
    answer = api.get(f"/v2.1/{collection}/web", microversion("2.35"))
    assert (answer.status_code, answer.json()["itemNotFound"]["message"]) == (404, text)
    assert api.get(f"/v2.1/{collection}/web", microversion("2.36")).status_code == 404


@pytest.mark.parametrize("path", ["images", "images/detail", "images/web"])
def test_who_asks_for_images_is_sent_to_their_service(api: Api, path: str) -> None:
    answer = api.get(f"/v2.1/{path}", microversion("2.35"))
    assert answer.status_code == 404
    assert "/image/v2/images" in answer.json()["itemNotFound"]["message"]
    assert list(api.get(f"/v2.1/{path}", microversion("2.36")).json()) == ["itemNotFound"]

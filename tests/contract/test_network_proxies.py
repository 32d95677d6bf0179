"""What clients are told that look something up which only a network service has."""

import pytest

from tests.contract.compute_fleet import Api, microversion


@pytest.mark.parametrize(
    ("collection", "things"),
    [
        ("os-networks", "networks"),
        ("os-tenant-networks", "networks"),
        ("os-security-groups", "security groups"),
        ("os-floating-ips", "floating addresses"),
    ],
)
def test_a_question_for_the_network_service_is_answered_with_the_reason_why_nothing_is_found(
    api: Api, collection: str, things: str
) -> None:
    expected = f"This fleet has no network service, and so no {things} to look up."
    for path in (collection, f"{collection}/web"):
        answer = api.get(f"/v2.1/{path}", microversion("2.35"))
        assert (answer.status_code, answer.json()["itemNotFound"]["message"]) == (404, expected)
        assert api.get(f"/v2.1/{path}", microversion("2.36")).status_code == 404

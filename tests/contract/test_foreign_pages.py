"""What a page of another site makes a browser ask for changes nothing, whichever face it is sent to."""

from collections.abc import Mapping

import pytest

from tests.contract.compute_fleet import Api, ComputeFleet

FOREIGN: tuple[Mapping[str, str], ...] = (
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://["},  # no URL
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
)
OWN: tuple[Mapping[str, str], ...] = (
    {},
    {"Origin": "http://api.test"},
    {"Sec-Fetch-Site": "same-origin", "Origin": "https://proxied.example"},
    {"Sec-Fetch-Site": "none"},
)


@pytest.fixture(scope="module")
def server(fleet: ComputeFleet) -> str:
    fleet.add_hosts(1)
    return fleet.create("north", host="north-host0")


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_page_of_another_site_changes_nothing(api: Api, server: str, headers: Mapping[str, str]) -> None:
    stopped = api.request("POST", f"/v2.1/servers/{server}/action", headers, json={"os-stop": None})
    assert stopped.status_code == 403
    assert "another site" in stopped.json()["forbidden"]["message"]
    rebooted = api.request("POST", f"/2/instances/{server}/reboot", headers)
    assert (rebooted.status_code, rebooted.json()["code"]) == (403, 403)


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_page_of_another_site_may_ask(api: Api, headers: Mapping[str, str]) -> None:
    assert api.request("GET", "/v2.1/servers", headers).status_code == 200


@pytest.mark.parametrize("headers", OWN, ids=str)
def test_own_pages_and_programs_may_change(api: Api, headers: Mapping[str, str]) -> None:
    assert api.request("POST", "/v2.1/os-keypairs", headers, json={"keypair": {}}).status_code == 400

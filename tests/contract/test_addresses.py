"""Addresses with several slashes, as clients make them of an endpoint that ends with one: Nova takes them for one."""

import pytest

from tests.contract.compute_fleet import Api


@pytest.mark.parametrize(
    "path", ["/v2.1//servers", "//v2.1/servers", "//v2.1///servers/detail", "/v2.1/servers//detail"]
)
def test_several_slashes_are_one(api: Api, path: str) -> None:
    expected = api.get("/v2.1/servers/detail" if path.endswith("detail") else "/v2.1/servers")
    answer = api.get(f"http://api.test{path}")
    assert (answer.status_code, answer.json()) == (200, expected.json())


def test_slash_in_a_value_stays(api: Api) -> None:
    assert api.get("/v2.1/servers?name=a%2F%2Fb").status_code == 200
    assert api.get("/v2.1/servers/%2F%2Fdetail").status_code == 404

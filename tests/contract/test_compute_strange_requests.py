"""Whatever a caller sends gets an answer that the contract knows; a 500 is always our mistake."""

import json
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetlight.api.compute.protocol.parameters import FORBIDDEN, PARAMETERS
from fleetlight.api.compute.server_lists.filter_and_order import IGNORED, SORTED
from tests.contract.compute_fleet import MEMBER, Api, ComputeFleet, microversion
from tests.support.examples import examples

_NAMES = st.sampled_from((*PARAMETERS, *FORBIDDEN, "_x", "foo", "", "é"))
_ODD = (
    "",
    "1",
    "-1",
    "9" * 30,
    "true",
    "[",
    "(a+)+$",
    "(?=a)",
    "a|b",
    "%",
    "😀",
    "\ud800",
    "a,b",
    "asc",
    "ACTIVE",
    "deleted",
)
_TIMES = ("2026-11-22T00:00:00Z", "0001-01-01", "9999-12-31T23:59:59-23:59", "2026-13", "1" * 40)
_UUIDS = ("6c0411de-b671-4b20-85fa-8e9efa9a728a", "00000000-0000-0000-0000-00000000000g", "{}", "urn:uuid:")
_VALUES = st.one_of(st.sampled_from((*_ODD, *_TIMES, *_UUIDS, *SORTED, *IGNORED)), st.text(max_size=12))
_PAIRS = st.lists(st.tuples(_NAMES, _VALUES), max_size=5)


@pytest.fixture(scope="module")
def fleet(fleet: ComputeFleet) -> ComputeFleet:
    fleet.fill(6)
    return fleet


def encoded(text: str) -> str:
    return quote(text.encode(errors="surrogatepass"))


@given(
    pairs=_PAIRS,
    minor=st.sampled_from((1, 25, 37, 38, 66, 72, 73, 74, 75, 90, 104)),
    is_admin=st.booleans(),
    consistency=st.sampled_from(("any", "strong")),
)
@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_query_string_makes_a_list_fail(
    api: Api, pairs: list[tuple[str, str]], minor: int, is_admin: bool, consistency: str
) -> None:
    query = "&".join(f"{encoded(name)}={encoded(value)}" for name, value in pairs)
    headers = [microversion(f"2.{minor}"), {"Fleetlight-Consistency": consistency}, {} if is_admin else MEMBER]
    response = api.get(f"/v2.1/servers/detail?{query}", *headers)
    assert response.status_code in {200, 400, 403}, response.text
    (key,) = json.loads(response.content).keys() - {"servers_links"}
    assert key == {200: "servers", 400: "badRequest", 403: "forbidden"}[response.status_code]


@given(raw=st.binary(max_size=20), header=st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20))
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_bytes_and_no_header_make_a_list_fail(api: Api, raw: bytes, header: str) -> None:
    headers = {"Fleetlight-Consistency": header, "OpenStack-API-Version": header, "Host": header, "X-Roles": header}
    for name, value in headers.items():
        response = api.get(f"/v2.1/servers?{quote(raw)}&name={quote(raw)}", {name: value})
        assert response.status_code in {200, 400, 403, 406}, response.text


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v2.1/nothing"),
        ("PATCH", "/v2.1/servers"),
        ("GET", "/v2/nothing"),
        ("GET", "/v2.1/servers%00"),
    ],
)
def test_unknown_address_has_the_id_of_the_request(api: Api, method: str, path: str) -> None:
    answer = api.request(method, path, {})
    assert answer.status_code == 404
    ids = {answer.headers[name] for name in ("X-Openstack-Request-Id", "X-Compute-Request-Id")}
    [request_id] = ids
    assert request_id.startswith("req-")

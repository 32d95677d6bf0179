"""Requests: what Nova's own schemas accept gets no 400 for its form here, and what they refuse gets one."""

import json
import os
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from starlette.applications import Starlette
from starlette.routing import Route as StarletteRoute

from fleetlight.api.bodies.request_body import MAX_INTEGER, Body
from fleetlight.api.compute.protocol.route_table import ApiRoute, RouteTable
from fleetlight.api.http.errors import BadRequestError
from tests.contract.compute_fleet import Api, ComputeFleet, compute_fleet, microversion

pytestmark = pytest.mark.night

_SCRIPT = Path(__file__).resolve().parents[2] / "nova" / "check_requests.py"
_UUID = re.compile(r"[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")
_UNTIL_5 = ("os-getVNCConsole", "os-getSPICEConsole", "os-getSerialConsole")
_UNTIL_43 = ("addFloatingIp", "removeFloatingIp", "addFixedIp", "removeFixedIp")
# Nova keeps apart from its schemas which microversions have an action: the first and the last.
_SPANS: Mapping[str, tuple[int, int]] = {
    "trigger_crash_dump": (17, 104),
    "force_complete": (22, 104),
    **dict.fromkeys(_UNTIL_5, (1, 5)),
    **dict.fromkeys(_UNTIL_43, (1, 43)),
}
_NETWORKS_ARE_UUIDS_SINCE = 37
_LONGEST_USER_ID = 255
# These have 60 parameters, most of them patterns, and tests of their own.
_LISTS_OF_SERVERS = frozenset({"GET /servers", "GET /servers/detail"})
# Whatever their parameters, the answer is that another service has them.
_OF_ANOTHER_SERVICE = frozenset({"GET /images", "GET /images/detail"})
# What Nova's handlers refuse with 400, and its schemas do not.
_CHECKED_LATER = frozenset({"marker", "minRam", "minDisk", "is_public", "name", "start", "end"})
# Where Nova has no schema for queries from the microversion on that brought them.
_OTHERS_ARE_REFUSED_SINCE = 102
_FORGOTTEN_BY_NOVA = frozenset(
    {
        "GET /os-quota-sets/{}/defaults",
        "GET /servers/{}/os-volume_attachments/{}",
        "GET /servers/{}/tags",
        "GET /servers/{}/tags/{}",
    }
)
# Elements of addresses; of others the uuid of a server will do.
_NAMES: Mapping[str, str] = {
    "flavor_id": "1",
    "aggregate_id": "1",
    "quota_project": "demo",
    "tenant_id": "demo",
    "before": "2026-11-21%2010:00:00",
}


Routes = Mapping[str, Sequence[ApiRoute]]
Said = Mapping[str, Any]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComputeFleet]:
    with compute_fleet(tmp_path_factory.mktemp("fleet")) as fleet:
        fleet.add_hosts(1)
        yield fleet


@pytest.fixture(scope="module")
def api(fleet: ComputeFleet) -> Api:
    return fleet.api()


@pytest.fixture(scope="module")
def routes(api: Api) -> Routes:
    """All, by method and address without names, as in `PUT /servers/{}`."""
    found = defaultdict(list)
    for route in _table(api.app).routes:
        found[route.method + " " + re.sub(r"{\w+}", "{}", route.path)].append(route)
    return found


@pytest.fixture(scope="module")
def said_by_nova(routes: Routes, nova_environment: str) -> Sequence[Said]:
    python = Path(nova_environment).parent / "bin" / "python"
    # With bytecode it starts in two seconds, without in twenty.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    said = subprocess.run(
        [python, "-P", "-W", "ignore", _SCRIPT],
        input="\n".join(routes.keys() - _LISTS_OF_SERVERS - _OF_ANOTHER_SERVICE),
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    # Where Nova breaks off with a 500 there is nothing to compare with.
    return [each for each in map(json.loads, said.stdout.splitlines()) if each["accepted"] is not None]


def _table(app: Starlette) -> RouteTable:
    [answer] = [
        route.endpoint
        for route in app.routes
        if isinstance(route, StarletteRoute) and route.path == "/v2.1/{path:path}"
    ]
    table = getattr(answer, "__self__", None)
    assert isinstance(table, RouteTable)
    return table


@pytest.mark.timeout(300)
def test_a_body_is_refused_if_nova_refuses_it(routes: Routes, said_by_nova: Sequence[Said]) -> None:
    wrong, count = set(), 0
    for said in said_by_nova:
        if "body" not in said:
            continue
        with_body = [route for route in routes[said["route"]] if route.body is not None]
        # Where both microversions have one model, it is asked once.
        by_model = {_body_of(route).model(minor): (route, minor) for route, minor in _asked(said, with_body)}
        for route, minor in by_model.values():
            count += 1
            is_accepted = _accepts(_body_of(route), said["body"], minor)
            if is_accepted != said["accepted"] and not _is_meant(said, minor, is_accepted=is_accepted):
                wrong.add((said["route"], minor, json.dumps(said["body"]), "accepted" if is_accepted else "refused"))
    assert count > 20_000
    assert sorted(wrong) == []


@pytest.mark.timeout(300)
def test_a_query_is_refused_if_nova_refuses_it(
    fleet: ComputeFleet, api: Api, routes: Routes, said_by_nova: Sequence[Said]
) -> None:
    uuid = fleet.create("north")
    wrong, count = set(), 0
    for said in said_by_nova:
        if "query" not in said:
            continue
        for route, minor in _asked(said, [route for route in routes[said["route"]] if route.success]):
            count += 1
            path = "/v2.1" + re.sub(r"{(\w+)}", lambda name: _NAMES.get(name[1], uuid), route.path)
            headers = microversion(f"2.{minor}")
            body: dict[str, Any] | None = {"quota_set": {}} if route.method == "PUT" else None
            answer = api.request(route.method, path, headers, params=said["query"], json=body)
            is_accepted = answer.status_code != 400
            is_meant = not is_accepted and (
                {*said["query"]} & _CHECKED_LATER
                or (said["route"] in _FORGOTTEN_BY_NOVA and minor >= _OTHERS_ARE_REFUSED_SINCE)
            )
            if is_accepted != said["accepted"] and not is_meant:
                wrong.add((said["route"], minor, json.dumps(said["query"]), answer.status_code, answer.text))
    assert count > 500
    assert sorted(wrong) == []


def _asked(said: Said, routes: Sequence[ApiRoute]) -> Iterator[tuple[ApiRoute, int]]:
    """The first and the last microversion that Nova has the schema in, with the route there."""
    (first, last), (since, until) = said["minors"], _SPANS.get(said.get("action", ""), (1, 104))
    for minor in {max(first, since), min(last, until)}:
        yield from ((route, minor) for route in routes if route.is_in(minor))


def _body_of(route: ApiRoute) -> Body[Any]:
    assert route.body is not None
    return route.body


def _accepts(known: Body[Any], body: object, minor: int) -> bool:
    try:
        known.check(body, minor)
    except BadRequestError:
        return False
    return True


def _is_meant(said: Said, minor: int, *, is_accepted: bool) -> bool:
    """Whether docs/reference/compatibility.md says that it differs, or Nova answers 400 too, only later."""
    texts, place = list(_texts(said["value"])), said["place"]
    if is_accepted:
        return any(max(text, default="") > "\uffff" for text in texts)
    return (
        any(text.endswith("\n") or _is_odd_uuid(text) for text in texts)
        or (place == ["server", "networks", None, "uuid"] and minor < _NETWORKS_ARE_UUIDS_SINCE)
        or (place[1:2] == ["personality"])
        or (place == ["flavor", "rxtx_factor"] and said["value"] == "0")
        or (place == ["keypair", "user_id"] and len(said["value"]) > _LONGEST_USER_ID)
        or (place == ["server_group", "rules", "max_server_per_host"] and int(said["value"]) > MAX_INTEGER)
        or (bool(said["action"]) and len(said["body"]) > 1)
    )


def _is_odd_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return not _UUID.fullmatch(text)


def _texts(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list():
            for each in value:
                yield from _texts(each)
        case dict():
            for name, each in value.items():
                yield name
                yield from _texts(each)

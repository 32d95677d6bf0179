"""Bodies of requests: what Nova's own schemas accept gets no 400 for its form here, and what they refuse gets one."""

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
from fastapi import FastAPI
from starlette.routing import Route as StarletteRoute

from api.compute.protocol.routes import Route, RouteTable
from api.errors import BadRequestError
from tests.contract.compute_fleet import compute_fleet

_SCRIPT = Path(__file__).resolve().parents[2] / "nova" / "check_bodies.py"
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


@pytest.fixture(scope="module")
def routes(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Sequence[Route]]:
    """Those below /servers that have a body, by method and address without names, as in `PUT /servers/{}`."""
    found = defaultdict(list)
    with compute_fleet(tmp_path_factory.mktemp("fleet")) as fleet:
        for route in _table(fleet.api().app).routes:
            if route.path.startswith("/servers") and route.body is not None:
                found[route.method + " " + re.sub(r"{\w+}", "{}", route.path)].append(route)
    return found


def _table(app: FastAPI) -> RouteTable:
    [answer] = [
        route.endpoint
        for route in app.routes
        if isinstance(route, StarletteRoute) and route.path == "/v2.1/{path:path}"
    ]
    table = getattr(answer, "__self__", None)
    assert isinstance(table, RouteTable)
    return table


@pytest.mark.timeout(300)
def test_a_body_is_refused_if_nova_refuses_it(routes: Mapping[str, Sequence[Route]], nova_environment: str) -> None:
    wrong, count = set(), 0
    for said in _said_by_nova(nova_environment, routes):
        for route, minor in _asked(said, routes[said["route"]]):
            count += 1
            is_accepted = _accepts(route, said["body"], minor)
            if is_accepted != said["accepted"] and not _is_meant(said, minor, is_accepted=is_accepted):
                wrong.add((said["route"], minor, json.dumps(said["body"]), "accepted" if is_accepted else "refused"))
    assert count > 20_000
    assert sorted(wrong) == []


def _said_by_nova(nova_environment: str, routes: Mapping[str, Sequence[Route]]) -> Iterator[Mapping[str, Any]]:
    python = Path(nova_environment).parent / "bin" / "python"
    # With bytecode it starts in two seconds, without in twenty.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    said = subprocess.run(
        [python, "-P", "-W", "ignore", _SCRIPT],
        input="\n".join(routes),
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    # Where Nova breaks off with a 500 there is nothing to compare with.
    return (each for each in map(json.loads, said.stdout.splitlines()) if each["accepted"] is not None)


def _asked(said: Mapping[str, Any], routes: Sequence[Route]) -> Iterator[tuple[Route, int]]:
    """The first and the last microversion that Nova has the schema in, with the route there."""
    (first, last), (since, until) = said["minors"], _SPANS.get(said["action"], (1, 104))
    for minor in {max(first, since), min(last, until)}:
        yield from ((route, minor) for route in routes if route.is_in(minor))


def _accepts(route: Route, body: object, minor: int) -> bool:
    assert route.body is not None
    try:
        route.body.check(body, minor)
    except BadRequestError:
        return False
    return True


def _is_meant(said: Mapping[str, Any], minor: int, *, is_accepted: bool) -> bool:
    """Whether docs/reference/compatibility.md says that it differs, or Nova answers 400 too, only later."""
    texts, place = list(_texts(said["value"])), said["place"]
    if is_accepted:
        return any(max(text, default="") > "\uffff" for text in texts)
    return (
        any(text.endswith("\n") or _is_odd_uuid(text) for text in texts)
        or (place == ["server", "networks", None, "uuid"] and minor < _NETWORKS_ARE_UUIDS_SINCE)
        or (place[1:2] == ["personality"])
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

"""What we answer over the databases of a Nova deployment is what Nova's own API answers, request by request.

Build requests are compared apart, since Nova lists them before everything else, whatever the order
(docs/reference/compatibility.md).
"""

import json
from typing import Any

import httpx
import pytest

from tests.contract.compute_fleet import Api
from tests.nova.questions import REQUESTS, USER, Asked, identifier
from tests.support.nova import NovaServer, NovaWorld
from tests.support.nova_fleet import NovaFleet

# The databases are made before the first test, which takes Nova a while.
pytestmark = pytest.mark.timeout(600)

_BUILD_REQUESTS = {identifier(name) for name in ("waiting", "waiting-elsewhere", "arrived")}
# Nova searches names as its database does: on MariaDB without regard to case and accents, and `|` is no alternative.
_MATCHED_BY_THE_DATABASE: dict[NovaServer, tuple[str, ...]] = {
    "sqlite": (),
    "postgresql": (),
    "mariadb": (),
}


def ask(api: Api, asked: Asked) -> httpx.Response:
    roles = "admin" if asked.is_admin else "member"
    who = {"X-Project-Id": asked.project, "X-User-Id": USER, "X-Roles": roles}
    return api.get(f"/v2.1{asked.path}", who, {"OpenStack-API-Version": f"compute {asked.version}"})


def without_build_requests(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [server for server in body["servers"] if server["id"] not in _BUILD_REQUESTS]


def comparable(server: dict[str, Any]) -> dict[str, Any]:
    """A server without the address that it was asked at, and without what Nova makes up at each look."""
    plain: dict[str, Any] = json.loads(
        json.dumps(server).replace('"http://nova/', '"/').replace('"http://api.test/', '"/')
    )
    if server.get("name") == "never-updated" or server["id"] in _BUILD_REQUESTS:
        plain.pop("updated", None)
    # The services of Nova's cells are not read.
    plain.pop("host_status", None)
    plain["tags"] = sorted(plain.get("tags", ()))
    return plain


def assert_equal(asked: Asked, answer: httpx.Response, nova: NovaWorld) -> None:
    status, body = nova.answer(asked)
    assert answer.status_code == status, answer.text
    if status != 200:
        return
    if "server" in body:
        assert comparable(answer.json()["server"]) == comparable(body["server"])
        return
    ours, theirs = without_build_requests(answer.json()), without_build_requests(body)
    assert [server["id"] for server in ours] == [server["id"] for server in theirs]
    assert [comparable(server) for server in ours] == [comparable(server) for server in theirs]


@pytest.mark.parametrize("asked", REQUESTS, ids=str)
def test_cells_are_listed_as_nova_lists_them(asked: Asked, fleet: NovaFleet, nova_deployment: NovaWorld) -> None:
    answer = ask(fleet.api(), asked)
    assert_equal(asked, answer, nova_deployment)
    if answer.status_code == 200:
        assert answer.headers["Fleetlight-Complete"] == "true"

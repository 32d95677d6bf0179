"""A change that loses a database anywhere on its way is to be tried again: 503 and `Retry-After`, at every face."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.exc import OperationalError

from tests.contract.compute_fleet import Api, ComputeFleet
from tests.support.values import IMAGE

_MOST_STATEMENTS = 80
_SERVER = {"name": "web", "flavorRef": "1", "imageRef": IMAGE, "networks": "none"}
_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJhYbJgUXh1i0sLm8wYvLZkT7bTz0Ct7mVYw3g2wq4pX a"
_SIZE = {"vcpus": 1, "memory_mb": 512, "root_gb": 1}

CHANGES = [
    ("POST", "/v2.1/servers", {"server": _SERVER}),
    ("DELETE", "/v2.1/servers/{uuid}", None),
    ("PUT", "/v2.1/servers/{uuid}", {"server": {"name": "new"}}),
    ("POST", "/v2.1/servers/{uuid}/action", {"lock": None}),
    ("POST", "/v2.1/servers/{uuid}/action", {"os-stop": None}),
    ("POST", "/v2.1/servers/{uuid}/action", {"resize": {"flavorRef": "2"}}),
    ("PUT", "/v2.1/servers/{uuid}/metadata", {"metadata": {"a": "b"}}),
    ("PUT", "/v2.1/servers/{uuid}/tags", {"tags": ["a"]}),
    ("POST", "/v2.1/flavors", {"flavor": {"name": "f", "vcpus": 1, "ram": 512, "disk": 1}}),
    ("POST", "/v2.1/os-keypairs", {"keypair": {"name": "k", "public_key": _KEY}}),
    ("POST", "/v2.1/os-server-groups", {"server_group": {"name": "g", "policy": "affinity"}}),
    ("POST", "/v2.1/os-aggregates", {"aggregate": {"name": "a"}}),
    ("PUT", "/v2.1/os-quota-sets/demo", {"quota_set": {"instances": 700}}),
    ("PUT", "/v2.1/os-services/disable", {"host": "north-host0", "binary": "nova-compute"}),
    ("PUT", "/2/instances/{uuid}/tags?tag=a", None),
    ("PUT", "/2/instances/{uuid}/shutdown", {}),
    ("PUT", "/2/instances/{uuid}/modify", {"beparams": {"vcpus": 2}}),
    ("DELETE", "/2/instances/{uuid}", None),
    ("POST", "/fleetlight/select-destinations", {"flavor": _SIZE}),
    ("POST", "/fleetlight/views", {"name": "v", "fields": ["name"]}),
    ("POST", "/fleetlight/bulk", {"action": "stop"}),
]


@dataclass
class Databases:
    """Those that are away are so from the statement on that comes next after `left`."""

    away: str = ""
    left: int = 0

    def before(self, connection: Any, _cursor: Any, statement: str, *_: object) -> None:
        if not self.away or self.away not in str(connection.engine.url):
            return
        if self.left == 0:
            raise OperationalError(statement, None, ConnectionError("the server closed the connection unexpectedly"))
        self.left -= 1

    @contextmanager
    def lost(self, name: str, *, after: int) -> Iterator[None]:
        self.away, self.left = name, after
        try:
            yield
        finally:
            self.away = ""


@pytest.fixture
def databases() -> Iterator[Databases]:
    databases = Databases()
    event.listen(Engine, "before_cursor_execute", databases.before)
    yield databases
    event.remove(Engine, "before_cursor_execute", databases.before)


@pytest.fixture(scope="module")
def api(fleet: ComputeFleet) -> Api:
    fleet.add_hosts()
    fleet.fill(3)
    return fleet.api()


@pytest.mark.parametrize("database", ["fleet", "north"])
@pytest.mark.parametrize("change", CHANGES)
def test_change_that_loses_a_database_anywhere_is_to_be_tried_again(
    fleet: ComputeFleet, api: Api, databases: Databases, database: str, change: tuple[str, str, Any]
) -> None:
    method, path, body = change
    url = path.format(uuid=fleet.create("north"))
    # As of before the identity of a service was its uuid.
    headers = {"X-OpenStack-Nova-API-Version": "2.52" if "os-services" in path else "2.74"}
    content = {} if body is None else {"json": body}
    for after in count():
        assert after < _MOST_STATEMENTS
        with databases.lost(database, after=after):
            answer = api.request(method, url, headers, **content)
        if answer.status_code != 503:
            break
        assert int(answer.headers["Retry-After"]) > 0
        assert "unexpectedly" not in answer.text
    # What was done before the answer was lost may be in the way of doing it again.
    assert answer.status_code < 500, answer.text
    assert after > 0 or database != "fleet"

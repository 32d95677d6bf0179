"""The `openstack` command, which knows nothing of tokens, finds by name what it has just renamed.

The index is a real Elasticsearch, with the refresh interval that it has in production.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.test_openstack_command import openstack, run_all
from tests.support.servers.index_server import backend_at
from tests.support.servers.live_api import LiveApi, live_api

pytestmark = [pytest.mark.timeout(400), pytest.mark.elasticsearch, pytest.mark.night]
TIMES = 8


@pytest.fixture
def live(tmp_path: Path, elasticsearch_url: str, elasticsearch_prefix: str) -> Iterator[LiveApi]:
    backend, prefix = backend_at(elasticsearch_url), elasticsearch_prefix.rstrip("-")
    index = {"backend": backend, "urls": [elasticsearch_url], "prefix": prefix}
    lines = [f"{name} = {json.dumps(value)}" for name, value in index.items()]
    config = tmp_path / "fleetlight.toml"
    config.write_text("\n".join(["[index]", *lines]), encoding="utf-8")
    rest = ("--cells", "2", "--simulate", "--instances", "20", "--rate", "0")
    with live_api(tmp_path, "--config", str(config), *rest) as api:
        yield api


def test_what_was_just_changed_is_found_and_listed(live: LiveApi) -> None:
    name = min(server["Name"] for server in openstack(live, "server", "list", "-f", "json"))
    commands = []
    for number in range(TIMES):
        commands += [f"server set --name renamed-{number} {name}", f"server show renamed-{number}"]
        name = f"renamed-{number}"
    commands += ["server create --flavor m1.tiny --image debian-12 --nic none new", "server list -f json"]
    commands += ["server delete --wait new", "server list -f json"]
    *_, created, _, deleted = run_all(live, commands)
    before, after = ({server["Name"] for server in json.loads(listed)} for listed in (created, deleted))
    assert before - after == {"new"}
    assert after - before == set()
    assert name in after

"""The `openstack` command, unmodified, with the clouds.yaml that `fleetlight up` writes.

Each call of it costs seconds, so there are few.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from openstack.connection import Connection

from tests.clients.conftest import INSTANCES
from tests.support.live_api import LiveApi
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(400)


def openstack(live: LiveApi, *arguments: str, cloud: str = "fleetlight") -> Any:
    """Runs the command, which must succeed; returns what it prints as JSON, None if it prints nothing."""
    command = [str(Path(sys.executable).with_name("openstack")), "--os-cloud", cloud, *arguments]
    others = {name: value for name, value in os.environ.items() if not name.startswith("OS_")}
    environment = others | {"OS_CLIENT_CONFIG_FILE": str(live.clouds_file)}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout) if result.stdout.strip() else None


def test_the_line_of_the_banner_lists_every_server_of_every_project(live: LiveApi, admin: Connection) -> None:
    wait_until(lambda: len(list(admin.compute.servers(all_projects=True))) == INSTANCES, timeout_s=120)
    listed = openstack(live, "server", "list", "--long", "--all-projects", "-f", "json")
    servers = {server.id: server for server in admin.compute.servers(all_projects=True)}
    assert {row["ID"] for row in listed} == set(servers)
    images = {image.name for image in admin.image.images()}
    for row in listed:
        assert (row["Name"], row["Status"]) == (servers[row["ID"]].name, servers[row["ID"]].status)
        assert row["Image Name"] in images or not servers[row["ID"]].image


def test_a_member_creates_and_deletes_a_server(live: LiveApi, member: Connection) -> None:
    wanted = ("--flavor", "m1.tiny", "--image", "debian-12", "--nic", "none", "--wait", "-f", "json")
    created = openstack(live, "server", "create", *wanted, "client-command", cloud="fleetlight-demo")
    assert (created["name"], created["status"]) == ("client-command", "ACTIVE")
    # The command looks the name up in a list, which may be as old as the index.
    wait_until(lambda: len(list(member.compute.servers(name="^client-command$"))) == 1, timeout_s=120)
    openstack(live, "server", "delete", "--wait", "client-command", cloud="fleetlight-demo")
    assert member.compute.find_server(created["id"]) is None

"""The `openstack` command, unmodified, with the clouds.yaml that `fleetlight up` writes.

Each start of it costs seconds, so most commands share one.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from openstack.compute.v2.server import Server
from openstack.connection import Connection

from tests.clients.conftest import INSTANCES
from tests.support.servers.live_api import LiveApi
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


def run_all(live: LiveApi, commands: Sequence[str]) -> list[str]:
    """Runs commands one after the other; all of them must succeed. Returns what each has printed."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("OS_")}
    environment = others | {"OS_CLIENT_CONFIG_FILE": str(live.clouds_file), "OS_COMPUTE_API_VERSION": "2.104"}
    process = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("many_commands.py")), "fleetlight"],
        input=json.dumps(commands),
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    results = json.loads(process.stdout)
    assert [(command, printed) for command, code, printed in results if code != 0] == []
    assert len(results) == len(commands)
    return [printed for _, _, printed in results]


# For administrators, about everything but servers.
USUAL_COMMANDS = (
    *("versions show", "catalog list", "token issue", "service list", "endpoint list", "region list", "domain list"),
    *("project list", "user list", "role list", "role assignment list --names", "image list", "extension list"),
    *("flavor list --all --long", "flavor create --ram 512 --vcpus 1 --disk 1 --private --project demo usual"),
    *("flavor set --property a=b --description text --project research usual", "flavor unset --property a usual"),
    *("flavor show usual", "flavor delete usual"),
    *("keypair create usual", "keypair list", "keypair show usual", "keypair delete usual"),
    *("quota show", "quota show --usage demo", "quota list --compute", "quota set --instances -1 demo"),
    *("limits show --absolute", "limits show --rate", "usage list", "usage show"),
    *("hypervisor list --long", "hypervisor show cell1-compute-01.example.org", "hypervisor list --matching cell1"),
    *(
        "compute service list --long",
        "compute service set --disable --disable-reason care cell1-compute-01 nova-compute",
    ),
    *("compute service set --enable cell1-compute-01 nova-compute", "availability zone list --long"),
    *(
        "host list",
        "host show cell1-compute-01",
        "host set --disable cell1-compute-01",
        "host set --enable cell1-compute-01",
    ),
    *("aggregate create --property ssd=true usual", "aggregate list --long", "aggregate set --name usual2 usual"),
    *("aggregate add host usual2 cell1-compute-01", "aggregate show usual2", "aggregate unset --property ssd usual2"),
    *("aggregate remove host usual2 cell1-compute-01", "aggregate delete usual2"),
    "server group create --policy anti-affinity --rule max_server_per_host=2 usual",
    *("server group list --all-projects --long", "server group show usual", "server group delete usual"),
    *("server list --long --all-projects", "server list --status ACTIVE --limit 2", "server list --deleted"),
    *("server list --name api --ip 10 --flavor m1.tiny --image debian-12", "server list --host cell1-compute-01"),
    *("server list --changes-since 2026-01-01T00:00:00 --locked", "server list --project demo --user admin"),
    *("server migration list", "server migration list --project demo --limit 1"),
    *("server migration list --status finished --type resize", "quota show --default", "quota delete research"),
    *("application credential create usual", "application credential show usual", "application credential list"),
    *("application credential delete usual", "hypervisor stats show"),
)


def test_usual_commands_succeed(live: LiveApi) -> None:
    run_all(live, USUAL_COMMANDS)


@pytest.fixture
def server(admin: Connection) -> Iterator[Server]:
    """One that is gone afterwards, whatever becomes of it: other tests count servers."""
    flavor, image = admin.compute.find_flavor("m1.tiny"), admin.image.find_image("debian-12")
    assert flavor is not None
    assert image is not None
    made = admin.compute.create_server(name="usual", flavor_id=flavor.id, image_id=image.id, networks="none")
    try:
        yield admin.compute.wait_for_server(made, wait=120)
    finally:
        admin.compute.delete_server(made, ignore_missing=True)
        admin.compute.wait_for_delete(made, wait=120)


@pytest.mark.night
def test_usual_commands_about_a_server_succeed(live: LiveApi, admin: Connection, server: Server) -> None:
    for commands in (
        [
            f"server show {server.id}",
            f"server show --topology {server.id}",
            f"server set --name usual2 --property k=v --description text --tag t {server.id}",
            f"server unset --property k --description --tag t {server.id}",
            f"server lock --reason care {server.id}",
            f"server unlock {server.id}",
            f"server reboot --hard --wait {server.id}",
            f"server resize --flavor m1.small --wait {server.id}",
            f"server resize confirm {server.id}",
        ],
        [
            f"server rebuild --image cirros-0.6.3 --password secret --property a=b --wait {server.id}",
            f"server migrate --wait {server.id}",
            f"server migrate revert {server.id}",
        ],
        [
            f"server event list --long {server.id}",
            f"server migration list --server {server.id}",
            f"server volume list {server.id}",
            f"server set --auto-approve --state active {server.id}",
            f"server migrate --live-migration --wait {server.id}",
            f"server shelve --offload --wait {server.id}",
            f"server unshelve --wait {server.id}",
            f"server delete --wait {server.id}",
        ],
    ):
        # The last command of those before may not wait, as `server resize confirm` does not.
        admin.compute.wait_for_server(server, wait=120)
        run_all(live, commands)


def test_the_line_of_the_banner_lists_every_server_of_every_project(live: LiveApi, admin: Connection) -> None:
    wait_until(lambda: len(list(admin.compute.servers(all_projects=True))) == INSTANCES, timeout_s=120)
    listed = openstack(live, "server", "list", "--long", "--all-projects", "-f", "json")
    servers = {server.id: server for server in admin.compute.servers(all_projects=True)}
    assert {row["ID"] for row in listed} == set(servers)
    images = {image.name for image in admin.image.images()}
    for row in listed:
        assert (row["Name"], row["Status"]) == (servers[row["ID"]].name, servers[row["ID"]].status)
        assert row["Image Name"] in images or not servers[row["ID"]].image


@pytest.mark.night
def test_a_member_creates_and_deletes_a_server(live: LiveApi, member: Connection) -> None:
    wanted = ("--flavor", "m1.tiny", "--image", "debian-12", "--nic", "none", "--wait", "-f", "json")
    created = openstack(live, "server", "create", *wanted, "client-command", cloud="fleetlight-demo")
    assert (created["name"], created["status"]) == ("client-command", "ACTIVE")
    # The command looks the name up in a list, which may be as old as the index.
    wait_until(lambda: len(list(member.compute.servers(name="^client-command$"))) == 1, timeout_s=120)
    openstack(live, "server", "delete", "--wait", "client-command", cloud="fleetlight-demo")
    assert member.compute.find_server(created["id"]) is None

"""`ansible-inventory` with the plugin in deploy/ansible, against an API here: what is asked, shown, refused."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from fleetlight.api.identity.tokens.strategy import TokenIdentity
from fleetlight.api.settings import ApiSettings
from fleetlight.resources.clock import system_clock
from tests.contract.compute_fleet import Api, BrokenCells, ComputeFleet, compute_fleet, searching
from tests.contract.identity_site import TOKENS
from tests.contract.test_discovery import addresses
from tests.support.fleets.identity import DEMO, PASSWORD, password_login, project_scope, write_directory
from tests.support.serving import QuietHandler, serving
from tests.support.session.product import ROOT

PAGE = 2
CELLS_ALONE = searching(enabled=False)
HOSTILE = "{{ 1 + 1 }}"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComputeFleet]:
    """web-1 to web-5, in three cells and of the project of the users, and a pair with one name."""
    with compute_fleet(tmp_path_factory.mktemp("fleet")) as fleet:
        for number, cell in enumerate(("north", "east", "south", "north", "east"), 1):
            tags = ["blue"] if number % 2 else [HOSTILE]
            values: dict[str, Any] = {"display_name": f"web-{number}", "project_id": DEMO, "tags": tags}
            fleet.create(cell, **values, vm_state="active", ip_addresses=addresses(number))
        for _ in range(2):
            fleet.create("north", display_name="twin", project_id=DEMO, vm_state="stopped")
        yield fleet


@dataclass
class Served:
    """url: where an API answers. token: of an administrator. asked: parameters of the queries that came, in order."""

    url: str
    token: str
    asked: list[dict[str, list[str]]] = field(default_factory=list)


@contextmanager
def served(api: Api) -> Iterator[Served]:
    """An API behind a port; nothing else may call it meanwhile."""
    login = api.request("POST", TOKENS, json=password_login("ada", scope=project_scope()))
    token = login.headers["X-Subject-Token"]

    class Bridge(QuietHandler):
        def do_GET(self) -> None:
            there.asked.append(parse_qs(urlsplit(self.path).query))
            sent = {name: value for name, value in self.headers.items() if name.lower() != "host"}
            response = api.get(self.path, sent)
            others = {name.title(): value for name, value in response.headers.items()}
            self.answer(response.status_code, response.content, others)

    with serving(HTTPServer(("127.0.0.1", 0), Bridge)) as address:
        there = Served(f"http://{address}", token)
        yield there


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> TokenIdentity:
    """Ada is an administrator, bob a member; both have the same password."""
    users = write_directory(tmp_path_factory.mktemp("users") / "identity.json")
    return TokenIdentity(users.path, region="RegionOne", lifetime_s=3600, clock=system_clock)


@pytest.fixture(scope="module")
def whole(fleet: ComputeFleet, users: TokenIdentity) -> Iterator[Served]:
    with served(fleet.api(identity=users, search=CELLS_ALONE, settings=ApiSettings(max_limit=PAGE))) as there:
        yield there


@pytest.fixture(scope="module")
def without_south(fleet: ComputeFleet, users: TokenIdentity, whole: Served) -> Iterator[Served]:
    """The same while the cell south does not answer."""
    pool = BrokenCells(fleet, failing_after={"south": 0})
    with served(fleet.api(identity=users, search=CELLS_ALONE, pool=pool)) as there:
        yield there


def command(name: str, *arguments: str, folder: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Runs a command of Ansible that knows nothing of this machine but collections in `folder`."""
    others = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "FLEETLIGHT_"))}
    ours = {"ANSIBLE_HOME": str(folder), "ANSIBLE_COLLECTIONS_PATH": str(folder), "LC_ALL": "C.UTF-8"}
    program = str(Path(sys.executable).with_name(name))
    return subprocess.run(
        [program, *arguments], env=others | ours | variables, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture(scope="module")
def collections(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the collection is installed, as the how-to says."""
    folder = tmp_path_factory.mktemp("collections")
    result = command("ansible-galaxy", "collection", "install", f"{ROOT}/deploy/ansible/", folder=folder)
    assert result.returncode == 0, result.stderr
    return folder


class Ansible:
    """`ansible-inventory` with the collection. folder: for the file of the inventory."""

    def __init__(self, folder: Path, collections: Path) -> None:
        self._folder, self._collections = folder, collections

    def run(
        self, there: Served, *arguments: str, as_member: bool = False, **options: object
    ) -> "subprocess.CompletedProcess[str]":
        """Lists an inventory as an administrator with a token, or as bob with a password: web servers unless told."""
        usual = {"url": there.url, "filter": 'vm_state == "active"'}
        login = {"user": "bob"} if as_member else {"token": there.token, "all_projects": True}
        source = self._folder / "web.fleetlight.yml"
        source.write_text(json.dumps({"plugin": "fleetlight.fleet.instances", **usual, **login, **options}))
        listing = ("--list", "-i", str(source), *arguments)
        return command("ansible-inventory", *listing, folder=self._collections, ANSIBLE_FLEETLIGHT_PASSWORD=PASSWORD)

    def inventory(self, there: Served, **options: Any) -> Any:
        """What is listed; all must go well."""
        result = self.run(there, **options)
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    def refusal(self, there: Served, *arguments: str, **options: Any) -> str:
        """What is said where nothing is listed."""
        result = self.run(there, *arguments, **options)
        assert (result.returncode, result.stdout) == (1, "")
        assert "Traceback" not in result.stderr
        return result.stderr


@pytest.fixture
def ansible(tmp_path: Path, collections: Path) -> Ansible:
    return Ansible(tmp_path, collections)


def hosts(inventory: Any) -> dict[str, Any]:
    found: dict[str, Any] = inventory["_meta"]["hostvars"]
    return found


def text(value: dict[str, str]) -> str:
    """A text that Ansible takes for no template, as `ansible-inventory` marks it."""
    return value["__ansible_unsafe"]


def test_all_pages_of_what_the_filter_lets_pass_are_hosts(whole: Served, ansible: Ansible) -> None:
    whole.asked.clear()
    listed = ansible.inventory(
        whole,
        fields=["uuid", "be/memory", "tags"],
        address_networks=["192.0.2.0/24"],
        keyed_groups=[{"key": "fleetlight_tags", "prefix": "tag"}],
        groups={"first": "inventory_hostname == 'web-1'"},
        compose={"tag": "fleetlight_tags[0]"},
    )
    assert [each["filter"] for each in whole.asked] == [['vm_state == "active"']] * 3
    assert ["marker" in each for each in whole.asked] == [False, True, True]
    assert whole.asked[0]["all_projects"] == ["1"]
    assert whole.asked[0]["fields"] == ["uuid,be/memory,tags,name,ip_addresses"]
    assert sorted(hosts(listed)) == [f"web-{number}" for number in range(1, 6)]
    assert listed["tag_blue"]["hosts"] == ["web-1", "web-3", "web-5"]
    assert listed["first"]["hosts"] == ["web-1"]
    second = hosts(listed)["web-2"]
    assert text(second["ansible_host"]) == "192.0.2.2"
    assert second["fleetlight_complete"] is True
    assert {"fleetlight_uuid", "fleetlight_be_memory"} < second.keys()
    # What tenants write is a text, and no template.
    assert text(second["tag"]) == HOSTILE


def test_incomplete_list_ends_ansible_though_another_source_has_hosts(without_south: Served, ansible: Ansible) -> None:
    said = ansible.refusal(without_south, "-i", "elsewhere,")
    assert "The list of instances is not complete: no answer from south." in said
    assert "`allow_incomplete: true`" in said


def test_members_do_not_learn_which_cells_are_missing(without_south: Served, ansible: Ansible) -> None:
    said = ansible.refusal(without_south, as_member=True)
    assert "not complete: ask administrators for `fleetlight explain`" in said
    assert "south" not in said


def test_incomplete_list_that_is_allowed_says_so_and_is_not_cached(
    whole: Served, without_south: Served, ansible: Ansible, tmp_path: Path
) -> None:
    cached: dict[str, Any] = {
        "cache": True,
        "cache_plugin": "ansible.builtin.jsonfile",
        "cache_connection": str(tmp_path / "cache"),
    }
    partly = ansible.run(without_south, allow_incomplete=True, **cached)
    assert "no answer from south" in partly.stderr
    found = hosts(json.loads(partly.stdout))
    assert {name: each["fleetlight_complete"] for name, each in found.items()} == dict.fromkeys(
        ("web-1", "web-2", "web-4", "web-5"), False
    )
    assert list((tmp_path / "cache").glob("*")) == []
    first = ansible.inventory(whole, **cached)
    whole.asked.clear()
    assert ansible.inventory(whole, **cached) == first
    assert whole.asked == []
    assert sorted(hosts(ansible.inventory(whole, **cached, filter='name == "web-3"'))) == ["web-3"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"fields": ["nmae"]}, "No such field, or none for this user: nmae."),
        ({"filter": "vm_state = "}, "refuses (400): Failed to parse query filter 'vm_state = '"),
        ({"token": "", "user": "bob", "password": "wrong"}, "refuses (401): "),
        ({"token": ""}, "Give `token`, or `user` and `password`."),
        ({"filter": None}, "Two instances have the name 'twin'; `hostname: uuid` names each."),
        ({"url": "http://127.0.0.1:1"}, "http://127.0.0.1:1 gives no answer: "),
        ({"address_networks": ["10.0.0.1/8"]}, "address_networks: 10.0.0.1/8 has host bits set"),
    ],
)
def test_what_is_wrong_is_said_in_words(
    whole: Served, ansible: Ansible, options: dict[str, Any], expected: str
) -> None:
    said = ansible.refusal(whole, **options)
    assert expected in said

"""An agent with a simulated host: nothing happens twice, nothing is lost, and what is refused is said."""

import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fleetlight.manager.agents.agent import Agent
from fleetlight.manager.agents.calls import CALLS
from fleetlight.manager.agents.database import AgentDatabase
from fleetlight.manager.agents.drivers.driver import GuestState, HypervisorState
from fleetlight.manager.agents.drivers.simulated import BEHAVIOUR_FILE, HostSize, SimulatedDriver
from fleetlight.manager.agents.errors import AgentError, CallRefusedError, CallUnderWayError, DriverError
from fleetlight.manager.agents.journal import Journal
from fleetlight.manager.agents.wire import CallRequest
from tests.support.played.agents import simulated_agent

SIZE = HostSize(vcpus=8, memory_mib=4096, disk_mib=10_000)
WEB = {"instance": "web", "hypervisor": "fake", "memory": 1024, "vcpus": 2}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[AgentDatabase]:
    database = AgentDatabase(tmp_path)
    yield database
    database.close()


@pytest.fixture
def agent(database: AgentDatabase, tmp_path: Path) -> Agent:
    return Agent("node1", SimulatedDriver(database, tmp_path, SIZE), Journal(database))


def call(agent: Agent, name: str, arguments: dict[str, Any] | None = None, key: str | None = None) -> Any:
    return agent.call(name, CallRequest(arguments=arguments or {}, key=key))


def guests(agent: Agent) -> dict[str, Any]:
    """What the hypervisor has, without the time, which goes on."""
    succeeded, found = call(agent, "all_instances_info", {"hypervisor_list": ["fake"]})
    assert succeeded
    return {name: {key: guest[key] for key in ("memory", "vcpus", "state")} for name, guest in found.items()}


def test_snapshot_has_node_and_instances_of_one_moment(agent: Agent) -> None:
    call(agent, "instance_start", WEB, "a")
    call(agent, "blockdev_create", {"volume_group": "xenvg", "name": "disk0", "size": 1000}, "b")
    request = {"hv": [["fake", {}]], "diskinfo": ["xenvg", "other"], "bootid": True}
    succeeded, found = call(agent, "node_snapshot", {"request": request})
    assert succeeded
    time = found["hv"]["fake"]["instances"]["web"].pop("time")
    assert isinstance(time, float)
    assert found == {
        "hv": {
            "fake": {
                "node": {
                    "memory_total": 4096,
                    "memory_free": 3072,
                    "memory_dom0": 0,
                    "cpu_total": 8,
                    "cpu_nodes": 1,
                    "cpu_sockets": 1,
                    "cpu_dom0": 0,
                },
                "instances": {"web": {"memory": 1024, "vcpus": 2, "state": 0}},
            }
        },
        "diskinfo": {"xenvg": {"vg_size": 10_000, "vg_free": 9000}, "other": {"vg_size": None, "vg_free": None}},
        "bootid": found["bootid"],
    }


def test_snapshot_brings_only_what_was_asked_for(agent: Agent) -> None:
    assert call(agent, "node_snapshot", {"request": {}}) == [True, {}]
    assert call(agent, "node_snapshot", {"request": {"bootid": True}})[1].keys() == {"bootid"}


def test_same_key_is_carried_out_once(agent: Agent) -> None:
    assert call(agent, "instance_start", WEB, "a") == [True, None]
    call(agent, "instance_shutdown", {"instance": "web"}, "b")
    assert call(agent, "instance_start", WEB, "a") == [True, None]
    assert guests(agent) == {}


def test_key_of_another_call_is_refused(agent: Agent) -> None:
    call(agent, "instance_start", WEB, "a")
    with pytest.raises(CallRefusedError, match="'a' belongs to another call"):
        call(agent, "instance_start", {**WEB, "memory": 2048}, "a")


def test_call_that_failed_may_be_made_again_with_its_key(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / BEHAVIOUR_FILE).write_text('{"instance_start": {"failure": "the disk is away"}}')
    assert call(agent, "instance_start", WEB, "a") == [False, "the disk is away"]
    (tmp_path / BEHAVIOUR_FILE).unlink()
    assert call(agent, "instance_start", WEB, "a") == [True, None]
    assert guests(agent) == {"web": {"memory": 1024, "vcpus": 2, "state": 0}}


def test_change_that_was_not_noted_did_not_happen(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the process is killed in between: the next call with the key carries it out."""

    def killed(*_arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "add", killed)
        with pytest.raises(KeyboardInterrupt):
            call(agent, "instance_start", WEB, "a")
    assert guests(agent) == {}
    assert call(agent, "instance_start", WEB, "a") == [True, None]


def test_guests_and_keys_outlive_the_process(tmp_path: Path) -> None:
    agent, _, database = simulated_agent("node1", tmp_path)
    call(agent, "instance_start", WEB, "a")
    call(agent, "instance_start", {**WEB, "instance": "db"}, "b")
    call(agent, "instance_shutdown", {"instance": "db"}, "c")
    boot_id = call(agent, "node_snapshot", {"request": {"bootid": True}})
    database.close()
    agent, _, database = simulated_agent("node1", tmp_path)
    assert guests(agent).keys() == {"web"}
    call(agent, "instance_start", {**WEB, "instance": "db"}, "b")
    assert guests(agent).keys() == {"web"}
    assert call(agent, "node_snapshot", {"request": {"bootid": True}}) == boot_id
    database.close()


def test_two_agents_do_not_share_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = AgentDatabase(tmp_path)
    # Unless it is told not to, SQLite waits five seconds for the other one to end.
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, timeout=0.01))
    with pytest.raises(AgentError, match="another agent may be running on it"):
        AgentDatabase(tmp_path)
    first.close()


def test_power_cycle_ends_the_guests_and_changes_the_boot_id(agent: Agent) -> None:
    call(agent, "instance_start", WEB, "a")
    before = call(agent, "node_snapshot", {"request": {"bootid": True}})
    call(agent, "node_powercycle", {}, "b")
    assert guests(agent) == {}
    assert call(agent, "node_snapshot", {"request": {"bootid": True}}) != before


def test_guest_that_migrates_is_always_on_one_host(tmp_path: Path) -> None:
    source, _, one = simulated_agent("node1", tmp_path / "1")
    target, _, other = simulated_agent("node2", tmp_path / "2")
    call(source, "instance_start", WEB, "a")
    call(target, "accept_instance", WEB, "b")
    assert (set(guests(source)), set(guests(target))) == ({"web"}, set())
    call(source, "instance_migrate", {"instance": "web", "target": "node2"}, "c")
    call(target, "instance_finalize_migration_dst", {"instance": "web", "success": True}, "d")
    call(source, "instance_finalize_migration_src", {"instance": "web", "success": True}, "e")
    assert (set(guests(source)), set(guests(target))) == (set(), {"web"})
    one.close()
    other.close()


def test_migration_that_failed_leaves_the_guest_where_it_was(tmp_path: Path) -> None:
    source, _, one = simulated_agent("node1", tmp_path / "1")
    target, _, other = simulated_agent("node2", tmp_path / "2")
    call(source, "instance_start", WEB, "a")
    call(target, "accept_instance", WEB, "b")
    call(source, "instance_migrate", {"instance": "web", "target": "node2"}, "c")
    call(target, "instance_finalize_migration_dst", {"instance": "web", "success": False}, "d")
    call(source, "instance_finalize_migration_src", {"instance": "web", "success": False}, "e")
    assert (set(guests(source)), set(guests(target))) == ({"web"}, set())
    one.close()
    other.close()


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("instance_start", {**WEB, "memory": 5000}, "instance 'web' needs 5000 MiB of memory, and 4096 MiB are free"),
        ("instance_start", {**WEB, "hypervisor": "xen"}, "this host has the hypervisor fake, and not 'xen'"),
        ("instance_reboot", {"instance": "db"}, "there is no instance 'db' here"),
        (
            "blockdev_create",
            {"volume_group": "xenvg", "name": "d", "size": 10_001},
            "a volume of 10001 MiB does not fit: xenvg has 10000 MiB free",
        ),
        (
            "blockdev_create",
            {"volume_group": "vg2", "name": "d", "size": 1},
            "this host has the volume group xenvg, and not 'vg2'",
        ),
    ],
)
def test_what_the_host_cannot_do_is_answered_in_words(
    agent: Agent, name: str, arguments: dict[str, Any], text: str
) -> None:
    assert call(agent, name, arguments, "a") == [False, text]


@pytest.mark.parametrize(
    ("name", "arguments", "key", "text"),
    [
        ("instance_begin", {}, "a", "knows no call 'instance_begin'"),
        ("instance_start", WEB, None, "needs a key"),
        ("instance_start", {**WEB, "memory": 0}, "a", "memory: Input should be greater than 0"),
        ("instance_start", {**WEB, "disk": 1}, "a", "disk: Extra inputs are not permitted"),
        ("node_snapshot", {"request": {"cpu": True}}, None, "request.cpu: Extra inputs are not permitted"),
        ("instance_remove", {"instance": "../../etc"}, "a", "instance: String should match pattern"),
        ("instance_create", {**WEB, "instance": "a/b"}, "a", "instance: String should match pattern"),
        (
            "blockdev_create",
            {"volume_group": "xenvg", "name": "..", "size": 1},
            "a",
            "name: String should match pattern",
        ),
        ("instance_start", {**WEB, "memory": 2**70}, "a", "memory: Input should be less than or equal to"),
        ("instance_start", {**WEB, "vcpus": 2**70}, "a", "vcpus: Input should be less than or equal to"),
        ("instance_create", {**WEB, "disks": [1] * 65}, "a", "disks: List should have at most 64 items"),
    ],
)
def test_what_is_no_call_is_refused(
    agent: Agent, name: str, arguments: dict[str, Any], key: str | None, text: str
) -> None:
    with pytest.raises(CallRefusedError, match=text):
        call(agent, name, arguments, key)


def test_behaviour_that_says_nothing_is_told_about(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / BEHAVIOUR_FILE).write_text('{"*": {"delay": 1}}')
    succeeded, text = call(agent, "version")
    assert not succeeded
    assert "behaviour.json" in text


class TwoHypervisors(SimulatedDriver):
    """Has the same guest under both."""

    def __init__(self, database: AgentDatabase, folder: Path, memory: int) -> None:
        super().__init__(database, folder, SIZE)
        self._memory = {"one": 1024, "two": memory}

    def hypervisor(self, name: str) -> HypervisorState:
        state = {"one": 0, "two": 1}[name]
        return HypervisorState({}, {"web": GuestState(self._memory[name], 2, state, 1.0)})


@pytest.mark.parametrize(
    ("memory", "answer"),
    [
        (1024, [True, {"web": {"memory": 1024, "vcpus": 2, "state": 1, "time": 1.0}}]),
        (2048, [False, "Instance web is running twice with different parameters"]),
    ],
)
def test_instance_under_two_hypervisors_has_to_be_the_same(
    database: AgentDatabase, tmp_path: Path, memory: int, answer: list[Any]
) -> None:
    agent = Agent("node1", TwoHypervisors(database, tmp_path, memory), Journal(database))
    assert call(agent, "all_instances_info", {"hypervisor_list": ["one", "two"]}) == answer


def test_every_call_says_what_arguments_it_takes() -> None:
    for name, entry in CALLS.items():
        assert entry.arguments.model_config["extra"] == "forbid", name


NEW = {**WEB, "disks": [1000, 500]}


def free_mib(agent: Agent) -> int:
    found = call(agent, "node_snapshot", {"request": {"diskinfo": ["xenvg"]}})
    return int(found[1]["diskinfo"]["xenvg"]["vg_free"])


def test_guest_is_made_with_its_disks_and_removed_with_them(agent: Agent) -> None:
    call(agent, "blockdev_create", {"volume_group": "xenvg", "name": "web.disk-of-others", "size": 100}, "a")
    for key in ("b", "c"):
        assert call(agent, "instance_create", NEW, key) == [True, None]
        assert (free_mib(agent), set(guests(agent))) == (8400, {"web"})
    for key in ("d", "e"):
        assert call(agent, "instance_remove", {"instance": "web"}, key) == [True, None]
        assert (free_mib(agent), guests(agent)) == (9900, {})


def test_guest_that_does_not_fit_leaves_no_disks(agent: Agent) -> None:
    assert call(agent, "instance_create", {**NEW, "memory": 5000}, "a")[0] is False
    assert call(agent, "instance_create", {**NEW, "disks": [9000, 2000]}, "b")[0] is False
    assert (free_mib(agent), guests(agent)) == (10_000, {})


def test_disk_grows_and_never_shrinks(agent: Agent) -> None:
    call(agent, "instance_create", NEW, "a")
    for number, (size, free) in enumerate([(1500, 8000), (1200, 8000), (1500, 8000)]):
        assert call(agent, "resize_disk", {"instance": "web", "disk": 0, "size": size}, f"g{number}") == [True, None]
        assert free_mib(agent) == free
    refused = call(agent, "resize_disk", {"instance": "web", "disk": 0, "size": 20_000}, "h")
    assert refused == [False, "a volume of 18500 MiB does not fit: xenvg has 8000 MiB free"]


def test_what_has_arrived_is_not_sent_back(agent: Agent) -> None:
    call(agent, "accept_instance", WEB, "a")
    call(agent, "instance_finalize_migration_dst", {"instance": "web", "success": True}, "b")
    given_up = call(agent, "instance_finalize_migration_dst", {"instance": "web", "success": False}, "c")
    assert given_up == [False, "instance 'web' has arrived here"]
    assert guests(agent).keys() == {"web"}


def test_hypervisor_that_is_not_here_has_nothing(agent: Agent) -> None:
    assert call(agent, "node_snapshot", {"request": {"hv": [["kvm", {}]]}}) == [
        True,
        {"hv": {"kvm": {"node": {}, "instances": {}}}},
    ]


def test_call_of_an_earlier_order_comes_too_late(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(name: str, arguments: dict[str, Any], key: str, order: int) -> Any:
        return agent.call(name, CallRequest(arguments=arguments, key=key, order=order))

    assert ask("instance_start", WEB, "a", 5) == [True, None]
    assert ask("instance_remove", {"instance": "web"}, "b", 7) == [True, None]
    with pytest.raises(CallRefusedError, match="something else was asked for on instance 'web' since"):
        ask("instance_start", WEB, "c", 6)
    assert ask("instance_start", WEB, "a", 5) == [True, None]
    assert guests(agent) == {}
    assert ask("instance_start", {**WEB, "instance": "db"}, "d", 6) == [True, None]
    # An hour later it is no worker that was held up, but a cell that was restored.
    monkeypatch.setattr("fleetlight.manager.agents.journal._HELD_UP_S", 0.0)
    assert ask("instance_start", WEB, "e", 6) == [True, None]


def test_who_asks_again_is_told_at_once_that_it_is_under_way(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    def ask_again(*_arguments: object) -> None:
        with pytest.raises(CallUnderWayError) as caught:
            call(agent, "instance_start", WEB, "a")
        told.append(str(caught.value))

    monkeypatch.setattr(SimulatedDriver, "before", ask_again)
    assert call(agent, "instance_start", WEB, "a") == [True, None]
    assert told == ["the call with the key 'a' is under way"]
    assert call(agent, "instance_start", WEB, "a") == [True, None]


def test_disk_that_is_full_is_said_and_nothing_is_done(agent: Agent, database: AgentDatabase) -> None:
    with database.transaction() as connection:
        connection.execute("CREATE TABLE filler (text TEXT)")
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(DriverError, match="database or disk is full"), database.transaction() as connection:
        connection.execute("INSERT INTO filler VALUES (hex(zeroblob(1000000)))")
    many = [call(agent, "instance_start", {**WEB, "instance": "x" * 255, "memory": 1}, f"{i:0199}") for i in range(99)]
    assert many[-1] == [False, "the agent cannot keep what it does: database or disk is full"]
    with database.transaction() as connection:
        connection.execute("PRAGMA max_page_count = 10000")
    assert call(agent, "instance_start", WEB, "a") == [True, None]


def test_agent_whose_last_change_could_not_be_committed_goes_on(agent: Agent, database: AgentDatabase) -> None:
    with database.transaction() as connection:
        connection.execute("CREATE TABLE parents (id INTEGER PRIMARY KEY)")
        connection.execute("CREATE TABLE children (id INTEGER REFERENCES parents DEFERRABLE INITIALLY DEFERRED)")
    database._connection.execute("PRAGMA foreign_keys = ON")
    with pytest.raises(DriverError, match="FOREIGN KEY"), database.transaction() as connection:
        connection.execute("INSERT INTO children VALUES (1)")
    assert call(agent, "instance_start", WEB, "a") == [True, None]
    assert guests(agent).keys() == {"web"}


def test_no_more_is_kept_than_a_limit(agent: Agent, database: AgentDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetlight.manager.agents.journal._KEPT", 10)
    for number in range(50):
        request = CallRequest(arguments={"instance": f"i{number % 25}"}, key=str(number), order=number)
        agent.call("instance_shutdown", request)
    with database.transaction() as connection:
        counts = [
            connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608 -- one of these
            for table in ("done_calls", "begun_orders")
        ]
    assert counts == [10, 10]

"""The rules of the node state cache, one by one (contracts/ganeti-node-state-cache)."""

import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from fleetlight.manager.agents.rpcs import RPCS, Effect
from fleetlight.manager.operations.nodes.cache import NodeStateCache
from fleetlight.manager.operations.nodes.errors import RequestError
from fleetlight.manager.operations.nodes.model import AgentNode
from fleetlight.manager.operations.nodes.requests import NodeStateRequest
from fleetlight.manager.operations.nodes.rpc import NodeRpc
from tests.support.memory.memory_store import MemoryStore
from tests.support.played.played_nodes import ManualClock, PlayedNodes, hypervisor_data
from tests.support.waiting import wait_until

TTL_S = 600
N1, N2, N3 = (AgentNode(f"node{number}.example.com", f"10.0.0.{number}") for number in (1, 2, 3))
HV: Mapping[str, Any] = {"hv": [["fake", {}]]}
BOOT: Mapping[str, Any] = {"bootid": True}
DISKS: Mapping[str, Any] = {"diskinfo": ["xenvg"]}
ALL: Mapping[str, Any] = {**HV, **BOOT, **DISKS}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def nodes() -> PlayedNodes:
    return PlayedNodes()


@pytest.fixture
def rpc(nodes: PlayedNodes, clock: ManualClock) -> Iterator[NodeRpc]:
    rpc = NodeRpc(nodes, NodeStateCache(MemoryStore(TTL_S, clock), clock=clock))
    yield rpc
    rpc.close()


def ask(rpc: NodeRpc, request: Mapping[str, Any], node: AgentNode = N1, **options: Any) -> Any:
    """The payload that one node gives."""
    result = rpc.node_snapshot([node], request, **options)[node.name]
    assert result.fail_msg is None
    return result.payload


def test_hit_brings_exactly_what_was_asked_for_and_calls_nobody(rpc: NodeRpc, nodes: PlayedNodes) -> None:
    assert ask(rpc, ALL).keys() == {"hv", "bootid", "diskinfo"}
    nodes.called()
    assert ask(rpc, BOOT) == {"bootid": "boot 0"}
    assert ask(rpc, HV) == {"hv": {"fake": hypervisor_data(0)}}
    assert nodes.called() == []


def test_second_flag_is_a_miss_that_asks_for_both(rpc: NodeRpc, nodes: PlayedNodes) -> None:
    ask(rpc, HV)
    assert ask(rpc, BOOT) == {"bootid": "boot 0"}
    assert [arguments["request"].keys() for *_, arguments in nodes.calls] == [{"hv"}, {"hv", "bootid"}]
    nodes.called()
    ask(rpc, {**HV, **BOOT})
    assert nodes.called() == []


@pytest.mark.parametrize("other", [{"hv": [["xen", {}]]}, {"diskinfo": ["xenvg", "vg2"]}], ids=["hv", "diskinfo"])
def test_hypervisor_or_volume_group_that_is_not_there_is_a_miss(
    rpc: NodeRpc, nodes: PlayedNodes, other: Mapping[str, Any]
) -> None:
    ask(rpc, ALL)
    nodes.called()
    ask(rpc, other)
    assert nodes.called() == [N1.name]
    ask(rpc, ALL)
    ask(rpc, other)
    assert nodes.called() == []


@pytest.mark.parametrize(("age_s", "calls"), [(600, 0), (600.001, 1), (601, 1)])
def test_entry_serves_for_600_seconds(
    rpc: NodeRpc, nodes: PlayedNodes, clock: ManualClock, age_s: float, calls: int
) -> None:
    ask(rpc, HV)
    nodes.called()
    clock.now_s += age_s
    ask(rpc, HV)
    assert len(nodes.called()) == calls
    assert rpc.cache.counts.of("expired") == calls


def test_age_counts_from_when_the_call_was_sent(rpc: NodeRpc, nodes: PlayedNodes, clock: ManualClock) -> None:
    def wait(_node: str, _name: str) -> None:
        clock.now_s += 100

    nodes.during = wait
    ask(rpc, HV)
    nodes.called()
    nodes.during = lambda _node, _name: None
    clock.now_s += 501
    ask(rpc, HV)
    assert nodes.called() == [N1.name]


def test_life_of_0_seconds_never_ends(nodes: PlayedNodes, clock: ManualClock) -> None:
    rpc = NodeRpc(nodes, NodeStateCache(MemoryStore(0, clock), clock=clock))
    ask(rpc, HV)
    nodes.called()
    clock.now_s += 1e9
    ask(rpc, HV)
    assert nodes.called() == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff",
        b'{"request": {}}',
        b'{"request": {}, "snapshot": {"hv": 1}}',
        b'{"request": {"cpu": 1}, "snapshot": {}}',
        b'{"request": 5, "snapshot": {}}',
    ],
)
def test_entry_that_is_none_is_a_miss(rpc: NodeRpc, nodes: PlayedNodes, content: bytes) -> None:
    """A server that processes share keeps what anybody puts there."""
    for request in (HV, BOOT):
        store = rpc.cache.store
        ticket, _ = store.begin_fetch(N1.name)
        assert store.put(N1.name, ticket, content, 0.0)
        ask(rpc, request)
        assert nodes.called() == [N1.name]
    ask(rpc, {**HV, **BOOT})


def test_bypass_replaces_the_entry(rpc: NodeRpc, nodes: PlayedNodes) -> None:
    ask(rpc, BOOT)
    nodes.versions[N1.name] = 7
    assert ask(rpc, BOOT, bypass=True) == {"bootid": "boot 7"}
    nodes.called()
    assert ask(rpc, BOOT) == {"bootid": "boot 7"}
    assert nodes.called() == []


def test_without_the_cache_nothing_is_looked_up_or_kept(rpc: NodeRpc, nodes: PlayedNodes) -> None:
    ask(rpc, BOOT, use_cache=False)
    ask(rpc, BOOT)
    ask(rpc, BOOT, use_cache=False)
    assert len(nodes.called()) == 3


@pytest.mark.parametrize("name", [*RPCS, "instance_strat"])
@pytest.mark.parametrize("is_strict", [False, True], ids=["", "strict"])
def test_call_forgets_what_its_class_says(nodes: PlayedNodes, clock: ManualClock, name: str, is_strict: bool) -> None:
    rpc = NodeRpc(nodes, NodeStateCache(MemoryStore(TTL_S, clock), is_strict=is_strict, clock=clock))
    rpc.node_snapshot([N1, N2], HV)
    rpc.call([N1], name, {"request": {}})
    nodes.called()
    rpc.node_snapshot([N1, N2], HV)
    effect = RPCS[name].effect if name in RPCS else Effect.CHANGES
    forgotten = {
        Effect.READS: [],
        Effect.CONFIGURES: [N1.name] if is_strict else [],
        Effect.CHANGES: [N1.name],
        Effect.CHANGES_ALL: [N1.name, N2.name],
    }
    assert sorted(nodes.called()) == forgotten[effect]
    rpc.close()


def test_call_that_fails_forgets_as_well(rpc: NodeRpc, nodes: PlayedNodes) -> None:
    ask(rpc, HV)
    nodes.failing[N1.name] = "no such instance"
    rpc.call([N1], "instance_shutdown", {"instance": "web"})
    nodes.failing.clear()
    nodes.called()
    ask(rpc, HV)
    assert nodes.called() == [N1.name]


def test_nothing_is_remembered_while_a_node_is_being_changed(rpc: NodeRpc, nodes: PlayedNodes) -> None:
    def look(_node: str, name: str) -> None:
        if name == "instance_start":
            assert ask(rpc, BOOT) == {"bootid": "boot 0"}
            assert ask(rpc, BOOT) == {"bootid": "boot 0"}

    nodes.during = look
    rpc.call([N1], "instance_start", {})
    assert nodes.called() == [N1.name, N1.name]
    assert rpc.cache.counts.of("discarded_stores") == 2
    assert ask(rpc, BOOT) == {"bootid": "boot 1"}


def test_answer_that_a_change_overtook_is_returned_and_not_kept(rpc: NodeRpc, nodes: PlayedNodes) -> None:
    def change(_node: str, name: str) -> None:
        if name == "node_snapshot":
            nodes.during = lambda _node, _name: None
            rpc.call([N1], "instance_shutdown", {"instance": "web"})

    nodes.during = change
    assert ask(rpc, BOOT) == {"bootid": "boot 0"}
    assert ask(rpc, BOOT) == {"bootid": "boot 1"}


@pytest.mark.parametrize(("waited_s", "calls"), [(59.9, 2), (60, 1)])
def test_after_a_change_that_timed_out_nothing_is_kept_for_a_minute(
    rpc: NodeRpc, nodes: PlayedNodes, clock: ManualClock, waited_s: float, calls: int
) -> None:
    nodes.failing[N1.name] = "no answer within 300 s"
    rpc.call([N1], "instance_start", {})
    nodes.failing.clear()
    nodes.called()
    clock.now_s += waited_s
    ask(rpc, BOOT)
    ask(rpc, BOOT)
    assert len(nodes.called()) == calls


def test_what_was_asked_while_a_node_may_be_changing_is_not_kept_however_late_it_comes(
    rpc: NodeRpc, nodes: PlayedNodes, clock: ManualClock
) -> None:
    nodes.failing[N1.name] = "no answer within 300 s"
    rpc.call([N1], "instance_start", {})
    nodes.failing.clear()

    def change_late(_node: str, _name: str) -> None:
        nodes.versions[N1.name] = 1
        clock.now_s += 60
        nodes.during = lambda _node, _name: None

    nodes.during = change_late
    assert ask(rpc, BOOT) == {"bootid": "boot 0"}
    assert ask(rpc, BOOT) == {"bootid": "boot 1"}


def test_older_answer_does_not_take_the_place_of_a_newer_one(rpc: NodeRpc, nodes: PlayedNodes) -> None:
    def overtake(_node: str, _name: str) -> None:
        nodes.during = lambda _node, _name: None
        nodes.versions[N1.name] = 5
        ask(rpc, BOOT, bypass=True)

    nodes.during = overtake
    assert ask(rpc, BOOT) == {"bootid": "boot 0"}
    assert ask(rpc, BOOT) == {"bootid": "boot 5"}


def test_of_many_nodes_only_those_that_miss_are_called(rpc: NodeRpc, nodes: PlayedNodes) -> None:
    ask(rpc, HV)
    nodes.called()
    results = rpc.node_snapshot([N1, N2], HV)
    assert list(results) == [N1.name, N2.name]
    assert nodes.called() == [N2.name]


def test_node_that_fails_costs_the_others_nothing_and_is_asked_again(rpc: NodeRpc, nodes: PlayedNodes) -> None:
    ask(rpc, HV)
    nodes.failing[N1.name] = "no route to host"
    results = rpc.node_snapshot([N1, N2], ALL)
    assert [result.fail_msg for result in results.values()] == ["no route to host", None]
    assert rpc.node_snapshot([N1], HV)[N1.name].fail_msg == "no route to host"
    nodes.failing.clear()
    ask(rpc, HV)


def test_offline_node_is_neither_called_nor_served(rpc: NodeRpc, nodes: PlayedNodes) -> None:
    ask(rpc, HV)
    nodes.called()
    marked = AgentNode(N1.name, N1.address, is_offline=True)
    result = rpc.node_snapshot([marked, N2], HV)[N1.name]
    assert (result.fail_msg, result.offline, result.payload) == ("Node is marked offline", True, None)
    assert nodes.called() == [N2.name]
    assert rpc.call([marked], "instance_start", {})[N1.name].offline
    ask(rpc, HV)
    assert nodes.called() == [N1.name]


def test_nothing_is_asked_for_nothing(rpc: NodeRpc, nodes: PlayedNodes) -> None:
    assert ask(rpc, {}) == {}
    assert nodes.calls == []


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ({"cpu": True}, "there is no flag 'cpu'; there are bootid, diskinfo, hv"),
        ({"hv": ["fake"]}, "'hv' takes a list of"),
        ({"hv": [["fake", None]]}, "'hv' takes a list of"),
        ({"diskinfo": "xenvg"}, "'diskinfo' takes a list of volume groups"),
        ({"bootid": 1}, "'bootid' takes true"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(
    rpc: NodeRpc, nodes: PlayedNodes, request_: Mapping[str, Any], text: str
) -> None:
    with pytest.raises(RequestError, match=text):
        rpc.node_snapshot([N1], request_)
    assert nodes.calls == []


def test_what_a_caller_does_to_its_answer_stays_with_it(rpc: NodeRpc) -> None:
    for _ in range(3):
        found = ask(rpc, HV)
        assert found == {"hv": {"fake": hypervisor_data(0)}}
        found["hv"]["fake"]["instances"].clear()
        found["hv"]["fake"]["node"]["memory_free"] = 99


def test_flag_that_is_missing_is_not_kept_and_the_rest_is(rpc: NodeRpc, nodes: PlayedNodes) -> None:
    nodes.change = lambda payload: {flag: value for flag, value in payload.items() if flag != "bootid"}
    assert ask(rpc, {**HV, **BOOT}) == {"hv": {"fake": hypervisor_data(0)}}
    nodes.called()
    ask(rpc, HV)
    assert nodes.called() == []
    ask(rpc, BOOT)
    assert nodes.called() == [N1.name]


def test_volume_group_that_the_node_lacks_is_remembered(rpc: NodeRpc, nodes: PlayedNodes) -> None:
    lacking = {"diskinfo": ["vg9"]}
    assert ask(rpc, lacking) == {"diskinfo": {"vg9": {"vg_size": None, "vg_free": None}}}
    nodes.called()
    assert ask(rpc, lacking) == {"diskinfo": {"vg9": {"vg_size": None, "vg_free": None}}}
    assert nodes.called() == []


@pytest.mark.parametrize("payload", [None, [], "boot 0"], ids=repr)
def test_snapshot_of_another_shape_is_a_failure(rpc: NodeRpc, nodes: PlayedNodes, payload: object) -> None:
    nodes.change = lambda _payload: payload
    result = rpc.node_snapshot([N1], BOOT)[N1.name]
    assert result.fail_msg == "RPC layer error: a snapshot is no object"


def test_operation_on_several_nodes_forgets_all_when_it_begins_and_when_it_ends(
    rpc: NodeRpc, nodes: PlayedNodes
) -> None:
    ask(rpc, BOOT, N3)

    def operation() -> None:
        with rpc.cache.changing_all(timeout_s=3600):
            ask(rpc, BOOT, N3)
            ask(rpc, BOOT, N3)
            nodes.versions[N3.name] = 1
            raise RuntimeError("the operation failed")

    with pytest.raises(RuntimeError, match="the operation failed"):
        operation()
    assert len(nodes.called()) == 3
    assert ask(rpc, BOOT, N3) == {"bootid": "boot 1"}


def test_change_of_the_configuration_forgets(rpc: NodeRpc, nodes: PlayedNodes) -> None:
    rpc.node_snapshot([N1, N2], BOOT)
    nodes.called()
    rpc.cache.forget([N1.name])
    rpc.node_snapshot([N1, N2], BOOT)
    assert nodes.called() == [N1.name]
    rpc.cache.forget(None)
    rpc.node_snapshot([N1, N2], BOOT)
    assert sorted(nodes.called()) == [N1.name, N2.name]


class Meeting:
    """Holds the first call in the middle until it is let go."""

    def __init__(self, nodes: PlayedNodes) -> None:
        self.go_on, self.is_there = threading.Event(), threading.Event()
        nodes.during = self._wait
        self._nodes = nodes

    def _wait(self, _node: str, _name: str) -> None:
        self._nodes.during = lambda _node, _name: None
        self.is_there.set()
        assert self.go_on.wait(30)


class Asking:
    """A caller in a thread of its own."""

    def __init__(self, rpc: NodeRpc, request: Mapping[str, Any], **options: Any) -> None:
        self.answer: Any = None
        self._thread = threading.Thread(target=self._ask, args=(rpc, request, options))
        self._thread.start()

    def _ask(self, rpc: NodeRpc, request: Mapping[str, Any], options: Mapping[str, Any]) -> None:
        self.answer = rpc.node_snapshot([N1], request, **options)[N1.name]

    def join(self) -> Any:
        self._thread.join(30)
        return self.answer


def test_callers_that_miss_together_share_one_call_and_not_its_answer(rpc: NodeRpc, nodes: PlayedNodes) -> None:
    meeting = Meeting(nodes)
    first = Asking(rpc, ALL)
    assert meeting.is_there.wait(30)
    others = [Asking(rpc, HV) for _ in range(3)]
    wait_until(lambda: rpc.cache.counts.of("misses") == 4)
    meeting.go_on.set()
    answers = [first.join(), *(other.join() for other in others)]
    assert len(nodes.called()) == 1
    answers[0].payload["hv"]["fake"]["instances"].clear()
    answers[1].payload["hv"].clear()
    assert [answer.payload for answer in answers[2:]] == [{"hv": {"fake": hypervisor_data(0)}}] * 2


def test_callers_that_miss_together_get_the_same_failure(rpc: NodeRpc, nodes: PlayedNodes) -> None:
    meeting = Meeting(nodes)
    nodes.failing[N1.name] = "no route to host"
    first = Asking(rpc, HV)
    assert meeting.is_there.wait(30)
    other = Asking(rpc, HV)
    wait_until(lambda: rpc.cache.counts.of("misses") == 2)
    meeting.go_on.set()
    assert [first.join().fail_msg, other.join().fail_msg] == ["no route to host"] * 2
    assert len(nodes.called()) == 1


@pytest.mark.parametrize("why", ["wants more", "bypass", "changed"])
def test_caller_asks_itself_when_the_running_call_is_not_enough(rpc: NodeRpc, nodes: PlayedNodes, why: str) -> None:
    meeting = Meeting(nodes)
    first = Asking(rpc, HV)
    assert meeting.is_there.wait(30)
    if why == "changed":
        rpc.call([N1], "instance_start", {})
    nodes.calls[1:] = []
    request = BOOT if why == "wants more" else HV
    payload = ask(rpc, request, bypass=why == "bypass")
    assert len(nodes.called()) == 2
    if why == "changed":
        assert payload == {"hv": {"fake": hypervisor_data(1)}}
    meeting.go_on.set()
    assert first.join().payload == {"hv": {"fake": hypervisor_data(0)}}


def test_counts(rpc: NodeRpc, nodes: PlayedNodes) -> None:
    ask(rpc, HV)
    ask(rpc, HV)
    ask(rpc, HV, bypass=True)
    rpc.call([N1], "instance_start", {})
    rpc.call([N1], "instance_migrate", {})
    names = ("hits", "misses", "expired", "invalidations", "flushes", "bypasses", "stores", "discarded_stores")
    assert {name: rpc.cache.counts.of(name) for name in names} == {
        "hits": 1,
        "misses": 1,
        "expired": 0,
        "invalidations": 1,
        "flushes": 1,
        "bypasses": 1,
        "stores": 2,
        "discarded_stores": 0,
    }
    assert rpc.cache.counts.calls_of(N1.name) == 4


@pytest.mark.parametrize(
    "said", [None, "much", {"hv": 5}, {"hv": {"fake": 5}}, {"hv": {"fake": {"node": [], "instances": {}}}}], ids=str
)
def test_snapshot_that_is_no_such_thing_is_not_remembered(rpc: NodeRpc, nodes: PlayedNodes, said: Any) -> None:
    nodes.change = lambda _payload: said
    request = NodeStateRequest((("fake", {}),), with_instances=False)
    for _ in range(2):
        result = rpc.node_snapshot([N1], request)[N1.name]
        assert result.has_failed or not result.payload.get("hv")
    assert nodes.called() == [N1.name] * 2


def test_state_of_the_node_alone_comes_without_its_instances(rpc: NodeRpc, nodes: PlayedNodes) -> None:
    lean, whole = (NodeStateRequest((("fake", {}),), with_instances=each) for each in (False, True))
    for request in (lean, whole, lean):
        [data] = rpc.node_snapshot([N1], request)[N1.name].payload["hv"].values()
        assert set(data) == ({"node", "instances"} if request is whole else {"node"})
    assert nodes.called() == [N1.name]


def test_more_silent_nodes_than_threads_are_all_given_up_in_time(rpc: NodeRpc, nodes: PlayedNodes) -> None:
    is_over = Event()
    nodes.during = lambda _node, _name: wait(is_over)
    many = [AgentNode(f"silent{number}", "10.0.0.1") for number in range(300)]
    began = time.monotonic()
    results = rpc.node_snapshot([N1, *many], {"bootid": True}, timeout_s=0.2)
    took_s = time.monotonic() - began
    is_over.set()
    assert {result.fail_msg for result in results.values()} == {"no answer within 0.2 s"}
    assert took_s < 5
    assert rpc.node_snapshot([N1], {"bootid": True})[N1.name].fail_msg is None


def test_readers_that_wait_for_silent_nodes_keep_no_other_node_from_being_called(
    rpc: NodeRpc, nodes: PlayedNodes
) -> None:
    is_over = Event()
    nodes.during = lambda node, _name: wait(is_over) if node.startswith("silent") else None
    silent = [AgentNode(f"silent{number}", "10.0.0.1") for number in range(100)]

    others = [AgentNode(f"other{number}", "10.0.0.2") for number in range(3)]

    def read(node: AgentNode) -> Any:
        return rpc.node_snapshot([*silent, node], {"bootid": True}, timeout_s=30)[node.name].fail_msg

    with ThreadPoolExecutor(4) as readers:
        # As many as all threads and more, if each reader took one for each node.
        first = readers.submit(read, N1)
        wait_until(lambda: len(nodes.calls) == 101)
        found = [readers.submit(read, node) for node in others]
        # Each reader joins the calls of the silent nodes before it calls its own.
        wait_until(lambda: {node.name for node in others} <= {name for name, *_ in nodes.calls})
        is_over.set()
        assert {each.result() for each in (first, *found)} == {None}
    assert len(nodes.calls) == 104


def wait(event: Event) -> None:
    event.wait(30)

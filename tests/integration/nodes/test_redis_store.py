"""What the processes of a cell remember together, in a real Redis."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from fleetlight.manager.operations.nodes.cache import NodeStateCache
from fleetlight.manager.operations.nodes.errors import StoreUnreachableError
from fleetlight.manager.operations.nodes.model import AgentNode
from fleetlight.manager.operations.nodes.rpc import NodeRpc
from fleetlight.manager.operations.nodes.stores.redis import RedisStore
from fleetlight.manager.operations.nodes.stores.store import StateChange, Store
from scripts.servers.private import PrivateServer, private_server
from scripts.servers.process import free_port
from scripts.servers.redis import DurableRedis
from tests.support.examples import examples
from tests.support.oracles.node_state_machine import TTL_S, NodeStateMachine
from tests.support.played.played_nodes import ManualClock, PlayedNodes

N1 = AgentNode("node1", "10.0.0.1")
BOOT = {"bootid": True}
_NOWHERE = "redis://127.0.0.1:1/0"


@pytest.fixture
def new_store(redis_url: str) -> Iterator[Callable[..., RedisStore]]:
    """Stores of one cell, each as another process has it."""
    cell, made = uuid4().hex, list[RedisStore]()

    def make(**options: Any) -> RedisStore:
        made.append(RedisStore(redis_url, cell, TTL_S, **options))
        return made[-1]

    yield make
    for store in made:
        store.close()


def rpc_over(store: Store, nodes: PlayedNodes, clock: Callable[[], float] = time.monotonic) -> NodeRpc:
    return NodeRpc(nodes, NodeStateCache(store, clock=clock))


def boot_id(rpc: NodeRpc, **options: Any) -> Any:
    return rpc.node_snapshot([N1], BOOT, **options)[N1.name].payload["bootid"]


def test_what_one_process_asked_serves_another(new_store: Callable[..., RedisStore]) -> None:
    nodes = PlayedNodes()
    one, other = rpc_over(new_store(), nodes), rpc_over(new_store(), nodes)
    assert boot_id(one) == boot_id(other) == "boot 0"
    assert nodes.called() == [N1.name]


@pytest.mark.parametrize("name", ["instance_start", "instance_migrate"])
def test_what_one_process_changes_another_does_not_remember(new_store: Callable[..., RedisStore], name: str) -> None:
    nodes = PlayedNodes()
    one, other = rpc_over(new_store(), nodes), rpc_over(new_store(), nodes)
    boot_id(one)
    other.call([N1], name, {})
    assert boot_id(one) == "boot 1"
    assert boot_id(other) == "boot 1"
    assert nodes.called() == [N1.name, N1.name]


def test_cells_do_not_see_each_other(new_store: Callable[..., RedisStore], redis_url: str) -> None:
    nodes = PlayedNodes()
    boot_id(rpc_over(new_store(), nodes))
    other = RedisStore(redis_url, uuid4().hex, TTL_S)
    boot_id(rpc_over(other, nodes))
    other.close()
    assert nodes.called() == [N1.name, N1.name]


@pytest.mark.parametrize(("age_s", "calls"), [(600, 0), (600.001, 1)])
def test_entry_serves_for_600_seconds(new_store: Callable[..., RedisStore], age_s: float, calls: int) -> None:
    nodes, clock = PlayedNodes(), ManualClock()
    rpc = rpc_over(new_store(clock=clock), nodes, clock)
    boot_id(rpc)
    nodes.called()
    clock.now_s += age_s
    boot_id(rpc)
    assert len(nodes.called()) == calls


def test_nothing_counts_that_was_kept_before_the_clock_was_set_back(new_store: Callable[..., RedisStore]) -> None:
    nodes, clock = PlayedNodes(), ManualClock()
    rpc = rpc_over(new_store(clock=clock), nodes)
    boot_id(rpc)
    clock.now_s -= 10
    nodes.called()
    boot_id(rpc)
    boot_id(rpc)
    assert nodes.called() == [N1.name]


def test_process_that_was_killed_in_a_change_keeps_the_node_unknown_until_that_is_over(
    new_store: Callable[..., RedisStore],
) -> None:
    nodes, clock = PlayedNodes(), ManualClock()
    killed, rpc = new_store(clock=clock), rpc_over(new_store(clock=clock), nodes, clock)
    killed.begin_change(StateChange([N1.name], timeout_s=300))
    boot_id(rpc)
    clock.now_s += 359
    boot_id(rpc)
    assert nodes.called() == [N1.name, N1.name]
    clock.now_s += 1
    boot_id(rpc)
    boot_id(rpc)
    assert nodes.called() == [N1.name]


def test_server_that_is_away_misses_and_lets_nothing_be_changed() -> None:
    nodes = PlayedNodes()
    rpc = rpc_over(RedisStore(_NOWHERE, "cell", TTL_S), nodes)
    assert boot_id(rpc) == boot_id(rpc) == "boot 0"
    assert rpc.cache.counts.of("unreachable") > 0
    nodes.calls.clear()
    with pytest.raises(StoreUnreachableError, match=r"redis://127\.0\.0\.1:1/0 cannot be reached"):
        rpc.call([N1], "instance_start", {})
    assert nodes.calls == []


def test_server_that_is_away_is_not_waited_for_by_each_read() -> None:
    store = RedisStore("redis://10.255.255.1:6379/0", "cell", TTL_S, timeout_s=0.2)
    begun = time.monotonic()
    for _ in range(100):
        with pytest.raises(StoreUnreachableError):
            store.find([N1.name])
    assert time.monotonic() - begun < 2


def test_password_of_the_server_is_in_no_text() -> None:
    with pytest.raises(StoreUnreachableError) as caught:
        RedisStore(f"redis://user:secret-word@127.0.0.1:{free_port()}/0", "cell", TTL_S).find([N1.name])
    assert "secret-word" not in str(caught.value)


@pytest.fixture
def own_server() -> Iterator[PrivateServer]:
    with private_server(DurableRedis()) as server:
        yield server


@pytest.mark.redis
def test_server_that_was_killed_has_forgotten_everything(own_server: PrivateServer) -> None:
    """Also what its files have: changes from after they were written are not in them."""
    nodes = PlayedNodes()
    rpc = rpc_over(RedisStore(own_server.url, "cell", TTL_S), nodes)
    boot_id(rpc)
    nodes.called()
    boot_id(rpc)
    assert nodes.called() == []
    own_server.kill()
    own_server.start()
    boot_id(rpc)
    assert nodes.called() == [N1.name]
    rpc.close()


@pytest.mark.redis
def test_answer_that_a_restart_of_the_server_overtook_is_not_kept(own_server: PrivateServer) -> None:
    nodes = PlayedNodes()
    rpc = rpc_over(RedisStore(own_server.url, "cell", TTL_S), nodes)
    boot_id(rpc)

    def restart(_node: str, _name: str) -> None:
        nodes.during = lambda _node, _name: None
        own_server.kill()
        own_server.start()

    nodes.during = restart
    boot_id(rpc, bypass=True)
    assert rpc.cache.counts.of("discarded_stores") == 1
    rpc.close()


class PartitionedStore(RedisStore):
    """A store whose server cannot be reached while a test says so."""

    is_cut_off = False

    def _step(self, step: str, nodes: Any, *arguments: Any) -> Any:
        if self.is_cut_off:
            raise StoreUnreachableError("redis", "cut off")
        return super()._step(step, nodes, *arguments)


def test_no_read_is_behind_a_change_that_had_ended_when_it_began(redis_url: str) -> None:
    """Two processes, each of which may be killed, and cut off from the server."""
    made = list[PartitionedStore]()

    class RedisMachine(NodeStateMachine):
        is_shared = True

        def new_stores(self) -> Sequence[Store]:
            cell = uuid4().hex
            self.partitioned = [PartitionedStore(redis_url, cell, TTL_S, clock=self.clock) for _ in range(2)]
            made.extend(self.partitioned)
            return self.partitioned

        def is_reachable(self, process: int) -> bool:
            return not self.partitioned[process].is_cut_off

        def something_happens(self, what: int, process: int, node: str, pick: int) -> None:
            if pick % 3 == 0:
                self.partitioned[process].is_cut_off ^= True
            else:
                super().something_happens(what, process, node, pick)

        def teardown(self) -> None:
            for store in self.partitioned:
                store.close()

    run_state_machine_as_test(
        RedisMachine, settings=settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
    )
    assert made

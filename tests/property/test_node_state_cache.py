"""Random interleavings at the node state cache, in one process (tests/support/oracles/node_state_machine.py)."""

from collections.abc import Sequence

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from fleetlight.manager.operations.nodes.stores.store import Store
from tests.support.examples import examples
from tests.support.memory.memory_store import MemoryStore
from tests.support.oracles.node_state_machine import TTL_S, NodeStateMachine


class MemoryMachine(NodeStateMachine):
    """Two threads of one process."""

    def new_stores(self) -> Sequence[Store]:
        return [MemoryStore(TTL_S, self.clock)] * 2


def test_no_read_is_behind_a_change_that_had_ended_when_it_began() -> None:
    run_state_machine_as_test(MemoryMachine, settings=settings(max_examples=examples(150), stateful_step_count=40))

"""The index equals the cells after every fault: a short run of those of `scripts/bench faults` that are quick to cause.

Eight cells under a load of operations, real servers. What is cut off is cut by a proxy, since the servers are shared;
what is killed was started for it. Nothing here depends on how fast anything is: a fault is caused when a number of
operations have gone by, and recovery may take minutes.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.faults.damage import Damage
from bench.faults.faults import FAULTS
from bench.faults.run import Supply, run_fault

pytestmark = [pytest.mark.elasticsearch, pytest.mark.rabbitmq, pytest.mark.postgresql, pytest.mark.timeout(600)]

# What is left to `scripts/bench faults`: faults that need a server of their own which takes long to start, or root.
_SLOW_TO_START = {"elasticsearch", "rabbitmq"}
_QUICK = [name for name, fault in FAULTS.items() if not fault.small_disk and _SLOW_TO_START.isdisjoint(fault.own)]


@pytest.fixture
def supply(elasticsearch_url: str, amqp_url: str, postgresql_url: str) -> Iterator[Supply]:
    shared = {"elasticsearch": elasticsearch_url, "rabbitmq": amqp_url, "postgresql": postgresql_url}
    with ExitStack() as stack:
        yield Supply(stack, shared)


@pytest.mark.parametrize("name", _QUICK)
def test_nothing_is_lost_doubled_or_resurrected_by(name: str, supply: Supply, tmp_path: Path) -> None:
    outcome = run_fault(FAULTS[name], supply, tmp_path, seed=1, rounds=1)
    assert outcome.damage == Damage()
    assert outcome.events > 20

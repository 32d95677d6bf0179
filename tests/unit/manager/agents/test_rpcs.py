"""Which calls may change what: the table of the program, read beside the one of the contract."""

import re
from pathlib import Path

import pytest

from fleetlight.manager.agents.calls import CALLS
from fleetlight.manager.agents.rpcs import RPCS, Effect, effect_of, rpc

_CONTRACT = Path(__file__).parents[4] / "docs" / "contracts" / "ganeti-node-state-cache.md"


def declared() -> dict[str, str]:
    """The class of each call, as section 5 of the contract has it."""
    section = _CONTRACT.read_text().split("## 5. ")[1].split("## 6. ")[0]
    rows = re.findall(r"^\| (reads|changes|configures|changes all) \| (.*) \|$", section, re.MULTILINE)
    return {name: effect for effect, names in rows for name in re.findall(r"`(\w+)`", names)}


def test_every_call_has_the_class_of_the_contract() -> None:
    assert {name: entry.effect.value for name, entry in RPCS.items()} == declared()


def test_all_calls_of_ganeti_are_declared() -> None:
    """108 calls between nodes, that of the query engine, and the snapshot; nine are ours."""
    assert len(RPCS) == 108 + 1 + 1 + 9


@pytest.mark.parametrize("name", ["instance_strat", "node_snapshot2", ""])
def test_call_that_nobody_declared_changes_its_node(name: str) -> None:
    assert rpc(name).effect is Effect.CHANGES


@pytest.mark.parametrize(("is_strict", "effect"), [(False, Effect.READS), (True, Effect.CHANGES)])
def test_writing_configuration_changes_a_node_only_by_the_strict_rule(is_strict: bool, effect: Effect) -> None:
    assert effect_of("jobqueue_update", is_strict=is_strict) is effect


@pytest.mark.parametrize("name", RPCS)
def test_strict_rule_leaves_the_other_classes(name: str) -> None:
    if RPCS[name].effect is not Effect.CONFIGURES:
        assert effect_of(name) is effect_of(name, is_strict=True) is RPCS[name].effect


def test_agents_answer_only_declared_calls() -> None:
    assert CALLS.keys() <= RPCS.keys()

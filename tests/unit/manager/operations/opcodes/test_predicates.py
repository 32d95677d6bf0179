"""Predicates of filters of jobs."""

from typing import Any

import pytest

from fleetlight.manager.operations.opcodes.filters.predicates import FilteredJob, PredicateError, check_predicate, holds

JOB = FilteredJob(
    40002,
    [
        {"OP_ID": "OP_GROUP_ADD", "group_name": "rack", "force": True, "nodes": ["a", 7], "priority": 5},
        {"OP_ID": "OP_TAGS_SET", "reason": [["gnt:user", "tonight", 9], ["gnt:x", "", 10]]},
    ],
)


@pytest.mark.parametrize(
    ("name", "expression", "expected"),
    [
        ("jobid", ["==", "id", 40002], True),
        ("jobid", ["!=", "id", 40002], False),
        ("jobid", [">", "id", "watermark"], True),
        ("jobid", ["<=", "id", "watermark"], False),
        ("jobid", ["<", "id", "text"], False),
        ("opcode", ["==", "OP_ID", "OP_TAGS_SET"], True),
        ("opcode", ["&", ["==", "OP_ID", "OP_TAGS_SET"], ["==", "group_name", "rack"]], False),
        ("opcode", ["|", ["==", "OP_ID", "x"], ["=~", "group_name", "^ra"]], True),
        ("opcode", ["?", "force"], True),
        ("opcode", ["==", "force", 1], False),
        ("opcode", ["=[]", "nodes", "a"], True),
        ("opcode", ["=[]", "nodes", 7], True),
        ("opcode", ["=[]", "priority", 5], False),
        ("opcode", ["=[]", "group_name", "ac"], True),
        ("opcode", [">=", "priority", 5], True),
        ("opcode", [">=", "absent", 5], False),
        ("opcode", ["!", ["?", "absent"]], True),
        ("opcode", ["&"], True),
        ("opcode", ["|"], False),
        ("reason", ["&", ["==", "source", "gnt:user"], ["==", "reason", "tonight"]], True),
        ("reason", ["&", ["==", "source", "gnt:x"], ["==", "reason", "tonight"]], False),
        ("reason", [">", "timestamp", 9], True),
    ],
)
def test_predicate_is_about_one_operation_or_one_reason(name: str, expression: Any, expected: bool) -> None:
    check_predicate(name, expression)
    assert holds(name, expression, JOB, watermark=30002) is expected


@pytest.mark.parametrize(
    "expression",
    [None, [], "x", ["?"], ["==", "a"], ["==", 1, 2], ["~", "a", 1], ["=~", "a", "("], ["=~", "a", 1], ["!", 1, 2]],
)
def test_what_is_no_condition_is_refused(expression: Any) -> None:
    with pytest.raises(PredicateError):
        check_predicate("opcode", expression)


def test_condition_may_not_be_nested_without_an_end() -> None:
    expression: Any = ["?", "a"]
    for _ in range(9):
        expression = ["!", expression]
    check_predicate("opcode", expression)
    with pytest.raises(PredicateError, match="10 levels"):
        check_predicate("opcode", ["!", expression])

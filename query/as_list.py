"""Shows a filter as lists: the operator, then the field and its operands."""

import re
from dataclasses import fields
from typing import Any

from fleetlight.query.filters import And, Filter, Leaf, Or

_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")


def as_list(node: Filter) -> list[Any]:
    """`["and", ["eq", "vm_state", "active"], …]`; `["and"]` matches everything, and `["or"]` nothing."""
    match node:
        case And(terms):
            return ["and", *map(as_list, terms)]
        case Or(terms):
            return ["or", *map(as_list, terms)]
    operands = (getattr(node, each.name) for each in fields(node))
    return [
        _CAPITAL.sub("_", type(node).__name__).lower(),
        *(as_list(operand) if isinstance(operand, Leaf) else operand for operand in operands),
    ]

"""The part of a filter that a store can evaluate: what is about values that are stored as they are shown."""

from dataclasses import replace

from fleetlight.query.filters import Filter, Leaf, Not, leaves, split_expressible, with_leaves
from fleetlight.query.operators.anything import PythonOnlyLeaf
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.views.query2.values import Values


def split(node: Filter, values: Values) -> tuple[Filter, Filter]:
    """The filter on fields of records that stores answer, and the rest that rows are tried by; both are to be true."""

    def is_stored(part: Filter) -> bool:
        return all(_is_filterable(values[leaf.field].stored) and not _is_python_only(leaf) for leaf in leaves(part))

    stored, rest = split_expressible(node, is_stored)
    return with_leaves(stored, lambda leaf: _renamed(leaf, values)), rest


def split_live(node: Filter, values: Values) -> tuple[Filter, Filter]:
    """The filter that is tried before nodes are asked, and the rest, which needs what they say; both are to be true."""
    return split_expressible(node, lambda part: not any(values[leaf.field].is_live for leaf in leaves(part)))


def _is_filterable(name: str | None) -> bool:
    """Whether stores can evaluate filters on this stored field: of a structure not even whether it is there."""
    return name is not None and (INSTANCE_FIELDS[name].is_sortable or INSTANCE_FIELDS[name].is_list)


def _is_python_only(leaf: Leaf) -> bool:
    return isinstance(leaf.leaf if isinstance(leaf, Not) else leaf, PythonOnlyLeaf)


def _renamed(leaf: Leaf, values: Values) -> Leaf:
    name = values[leaf.field].stored
    if name is None:
        raise AssertionError(f"'{leaf.field}' is not stored")
    if isinstance(leaf, Not):
        return replace(leaf, field=name, leaf=_renamed(leaf.leaf, values))
    return replace(leaf, field=name)

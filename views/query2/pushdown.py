"""The part of a filter that a store can be asked: what is about values that are stored as they are shown."""

from dataclasses import replace

from query.filters import Filter, Leaf, Not, leaves, split_expressible, with_leaves
from query.operators.anything import LooksInside
from views.query2.values import Values


def split(node: Filter, values: Values) -> tuple[Filter, Filter]:
    """The filter on fields of records that stores answer, and the rest that rows are tried by; both are to be true."""

    def is_stored(part: Filter) -> bool:
        return all(values[leaf.field].stored is not None and not _looks_inside(leaf) for leaf in leaves(part))

    stored, rest = split_expressible(node, is_stored)
    return with_leaves(stored, lambda leaf: _renamed(leaf, values)), rest


def _looks_inside(leaf: Leaf) -> bool:
    return isinstance(leaf.leaf if isinstance(leaf, Not) else leaf, LooksInside)


def _renamed(leaf: Leaf, values: Values) -> Leaf:
    name = values[leaf.field].stored
    if name is None:
        raise AssertionError(f"'{leaf.field}' is not stored")
    if isinstance(leaf, Not):
        return replace(leaf, field=name, leaf=_renamed(leaf.leaf, values))
    return replace(leaf, field=name)

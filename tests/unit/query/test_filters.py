import pytest

from fleetlight.query.filters import (
    EVERYTHING,
    NOTHING,
    And,
    Eq,
    Filter,
    Ge,
    Gt,
    Has,
    In,
    IsNotNull,
    IsNull,
    Lacks,
    Le,
    Lt,
    Matches,
    Ne,
    NotIn,
    NotMatches,
    Or,
    all_of,
    any_of,
    leaves,
    negate,
    split_expressible,
)

A, B, C = Eq("a", 1), Eq("b", 2), Matches("c", "x")


@pytest.mark.parametrize(
    ("node", "negated"),
    [
        (Eq("a", 1), Ne("a", 1)),
        (In("a", (1, 2)), NotIn("a", (1, 2))),
        (Lt("a", 1), Ge("a", 1)),
        (Le("a", 1), Gt("a", 1)),
        (IsNull("a"), IsNotNull("a")),
        (Matches("a", "x"), NotMatches("a", "x")),
        (Has("a", "x"), Lacks("a", "x")),
        (And((Eq("a", 1), Lt("b", 2))), Or((Ne("a", 1), Ge("b", 2)))),
        (EVERYTHING, NOTHING),
    ],
)
def test_negation_is_pushed_down_to_the_leaves(node: Filter, negated: Filter) -> None:
    assert negate(node) == negated
    assert negate(negated) == node


def test_conjunction_and_disjunction_are_flat() -> None:
    assert all_of(And((A, B)), EVERYTHING, C) == And((A, B, C))
    assert any_of(Or((A, B)), NOTHING, C) == Or((A, B, C))
    assert all_of(A) == A
    assert all_of() == EVERYTHING
    assert any_of() == NOTHING


def test_leaves_come_from_left_to_right() -> None:
    assert list(leaves(And((A, Or((B, C)))))) == [A, B, C]


def test_only_the_terms_of_a_conjunction_are_split() -> None:
    def is_no_pattern(node: Filter) -> bool:
        return not any(isinstance(leaf, Matches) for leaf in leaves(node))

    assert split_expressible(And((A, C, B)), is_no_pattern) == (And((A, B)), C)
    assert split_expressible(Or((A, C)), is_no_pattern) == (EVERYTHING, Or((A, C)))
    assert split_expressible(A, is_no_pattern) == (A, EVERYTHING)

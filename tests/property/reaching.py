"""Examples that reach what a property is about: filters that keep something, and how many examples did reach it."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fleetlight.query.filters import EVERYTHING, And, Eq, Filter, Ge, Gt, Has, In, IsNotNull, IsNull, Le, Lt, Ne, Or
from fleetlight.resources.fields import ItemType, Kind, from_microseconds

T = TypeVar("T")

_EXAMPLES = 100


def shares(drawn: st.SearchStrategy[T], reached: Callable[[T], Iterable[str]]) -> Counter[str]:
    """How many of a hundred examples reach what; the same ones each time, so that a floor can be asserted.

    reached: the names of what one example reaches.
    """
    counts: Counter[str] = Counter()

    @settings(
        max_examples=_EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(drawn)
    def count(example: T) -> None:
        counts.update(set(reached(example)))

    count()
    return counts


@st.composite
def keeping_filters(
    draw: st.DrawFn,
    records: Sequence[Mapping[str, Any]],
    fields: ItemType,
    names: Sequence[str],
    others: st.SearchStrategy[Filter],
) -> Filter:
    """Mostly such as keep at least one of the records, with what makes no difference to it beside it.

    names: of the fields that they are about. others: any filters.
    """
    if not records or draw(st.integers(0, 4)) == 0:
        return draw(others)
    record = draw(st.sampled_from(records))
    kept = [draw(_true_leaves(record, fields, names)) for _ in range(draw(st.integers(1, 2)))]
    match draw(st.integers(0, 4)):
        case 0:
            return EVERYTHING
        case 1:
            return And(tuple(kept))
        case 2:
            return Or((draw(others), *kept))
        case 3:
            return And((Or((kept[0], draw(others))), *kept[1:]))
    return kept[0]


@st.composite
def _true_leaves(draw: st.DrawFn, record: Mapping[str, Any], fields: ItemType, names: Sequence[str]) -> Filter:
    """A leaf that is true of the record."""
    name = draw(st.sampled_from(names))
    value = record[name]
    if fields[name].is_list:
        return Has(name, draw(st.sampled_from(value))) if value else IsNotNull(name)
    if value is None:
        return IsNull(name)
    less: Any
    more: Any
    if fields[name].kind is Kind.TIMESTAMP:
        less, value, more = map(from_microseconds, (value - 1, value, value + 1))
    elif isinstance(value, str):
        # What is not the value has to fit in, too.
        less, more = value[:-1], value + "a"
    elif isinstance(value, bool):
        return draw(st.sampled_from((Eq(name, value), Ne(name, not value), IsNotNull(name))))
    else:
        less, more = value - 1, value + 1
    leaves: list[Filter] = [Eq(name, value), Le(name, value), Ge(name, value), In(name, (value, more)), Ne(name, more)]
    if less != value != more:
        leaves += [Gt(name, less), Lt(name, more)]
    return draw(st.sampled_from(leaves))

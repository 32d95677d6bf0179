"""Filter, order and position -> Elasticsearch's query DSL.

Goes with a mapping of text and lists as `keyword`, numbers and timestamps as `long` (microseconds), `float` as
`double`, booleans as `boolean`, and the two parts of the tie-break (UUID_PARTS) as `long`. Put the query into a filter
context: no scores are needed.
"""

import re
from collections.abc import Sequence
from typing import Any, assert_never
from uuid import UUID

from query.errors import NotExpressibleError
from query.filters import (
    And,
    Eq,
    Filter,
    Ge,
    Gt,
    Has,
    HasAddress,
    In,
    IsNotNull,
    IsNull,
    Lacks,
    LacksAddress,
    Le,
    Leaf,
    Lt,
    Matches,
    Ne,
    NotIn,
    NotMatches,
    Or,
    leaves,
)
from query.lowering import MIN_INTEGER, lower, without_values
from query.regex import to_lucene
from query.sort import UNIQUE_FIELD, Direction, SortOrder
from resources.fields import FieldSet, Kind

Dsl = dict[str, Any]

# Sorting by the keyword costs ten times a number (recipes: 316 ms against 35 ms for a page of 200,000 documents).
UUID_PARTS = ("uuid_high", "uuid_low")
_USUAL_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

_TARGET = "Elasticsearch"
# index.max_terms_count; one more is refused.
_MAX_TERMS = 65_536
# The longest term of Lucene, in bytes of UTF-8: none is stored, and a query with one is refused.
_MAX_TERM_BYTES = 32_766
# indices.query.bool.max_nested_depth is 30; some are left for what the query is put into.
_MAX_DEPTH = 24


def to_dsl(node: Filter, fields: FieldSet) -> Dsl:
    """The query that finds exactly the documents that `node`, which has passed query.check, is true of.

    Raises NotExpressibleError for what Elasticsearch would refuse or understand differently.
    """
    for leaf in leaves(node):
        if isinstance(leaf, Matches | NotMatches) and fields[leaf.field].kind is not Kind.TEXT:
            raise NotExpressibleError(_TARGET, f"a pattern about '{leaf.field}', which is no text")
    return _compile(lower(node, fields), depth=1)


def sort(order: SortOrder) -> list[Dsl]:
    """The `sort` of a search; nulls are the lowest values, and uuid is taken by its two parts."""
    terms: list[Dsl] = []
    for key in order.keys:
        if key.field == UNIQUE_FIELD:
            terms.extend({part: {"order": key.direction.value}} for part in UUID_PARTS)
        else:
            missing = "_first" if key.direction is Direction.ASC else "_last"
            terms.append({key.field: {"order": key.direction.value, "missing": missing}})
    return terms


def search_after(order: SortOrder, position: Sequence[Any], fields: FieldSet) -> list[Any]:
    """The `search_after` that goes with `sort(order)`.

    position: stored values of the order's keys (PageRequest.after).
    """
    values: list[Any] = []
    for key, value in zip(order.keys, position, strict=True):
        if key.field == UNIQUE_FIELD:
            values.extend(uuid_parts(value))
        elif value is None:
            values.append(_lowest(fields[key.field].kind))
        else:
            values.append(value)
    return values


def uuid_parts(uuid: str) -> tuple[int, int]:
    """The values of UUID_PARTS for a uuid in its usual form: signed 64-bit numbers that order as its text does.

    Raises ValueError for any other text.
    """
    # By hand: the class UUID takes three times as long, and every document that is written has two of these.
    if _USUAL_UUID.fullmatch(uuid) is None:
        raise ValueError(f"'{uuid}' is not a uuid in its lower-case form with dashes")
    digits = uuid.replace("-", "")
    return int(digits[:16], 16) + MIN_INTEGER, int(digits[16:], 16) + MIN_INTEGER


def uuid_of(high: int, low: int) -> str:
    """The uuid that `uuid_parts` gives these two numbers for."""
    return str(UUID(int=(high - MIN_INTEGER << 64) | (low - MIN_INTEGER)))


def _lowest(kind: Kind) -> Any:
    """What stands for a null in `search_after`: with a number's null Elasticsearch 9.4 answers with an error 500.

    It sorts a missing number as the lowest there is. We store no such number.
    """
    match kind:
        case Kind.TEXT:
            return None
        case Kind.FLOAT:
            return "-Infinity"
    return MIN_INTEGER


def _compile(node: Filter, depth: int) -> Dsl:
    if depth > _MAX_DEPTH:
        raise NotExpressibleError(_TARGET, "a filter nested so deeply")
    match node:
        case And(()):
            return {"match_all": {}}
        case Or(()):
            return {"match_none": {}}
        case And(terms):
            return {"bool": {"filter": [_compile(term, depth + 1) for term in terms]}}
        case Or(terms):
            return {"bool": {"should": [_compile(term, depth + 1) for term in terms], "minimum_should_match": 1}}
        case Eq() | Ne() | In() | NotIn() if (simpler := without_values(node, _is_too_long)) != node:
            return _compile(simpler, depth)
        case _:
            return _leaf(node)


def _leaf(leaf: Leaf) -> Dsl:
    match leaf:
        case Eq(field, value):
            return {"term": {field: value}}
        case Ne(field, value):
            return _not_null_and_not(field, [{"term": {field: value}}])
        case In(field, values):
            chunks = _terms(field, values)
            return chunks[0] if len(chunks) == 1 else {"bool": {"should": chunks, "minimum_should_match": 1}}
        case NotIn(field, values):
            return _not_null_and_not(field, _terms(field, values))
        case Lt(field, value):
            return _range(field, "lt", value)
        case Le(field, value):
            return _range(field, "lte", value)
        case Gt(field, value):
            return _range(field, "gt", value)
        case Ge(field, value):
            return _range(field, "gte", value)
        case IsNull(field):
            return {"bool": {"must_not": [{"exists": {"field": field}}]}}
        case IsNotNull(field):
            return {"exists": {"field": field}}
        case Matches(field, pattern):
            return _regexp(field, pattern)
        case NotMatches(field, pattern):
            return _not_null_and_not(field, [_regexp(field, pattern)])
        case Has(field, element):
            return {"match_none": {}} if _is_too_long(element) else {"term": {field: element}}
        case Lacks(_, element) if _is_too_long(element):
            return {"match_all": {}}
        case Lacks(field, element):
            return {"bool": {"must_not": [{"term": {field: element}}]}}
        case HasAddress() | LacksAddress():
            raise NotExpressibleError(_TARGET, "a part of an address")
        case _:
            assert_never(leaf)


def _not_null_and_not(field: str, excluded: list[Dsl]) -> Dsl:
    """`must_not` alone keeps documents without the field; in SQL a null differs from nothing, and SQL decides."""
    return {"bool": {"filter": [{"exists": {"field": field}}], "must_not": excluded}}


def _terms(field: str, values: tuple[Any, ...]) -> list[Dsl]:
    return [{"terms": {field: list(values[at : at + _MAX_TERMS])}} for at in range(0, len(values), _MAX_TERMS)]


def _range(field: str, operator: str, value: Any) -> Dsl:
    if _is_too_long(value):
        raise NotExpressibleError(
            _TARGET, f"a comparison of '{field}' with a text of more than {_MAX_TERM_BYTES} bytes"
        )
    return {"range": {field: {operator: value}}}


def _regexp(field: str, pattern: str) -> Dsl:
    return {"regexp": {field: {"value": to_lucene(pattern), "flags": "NONE"}}}


def _is_too_long(value: Any) -> bool:
    return isinstance(value, str) and len(value) * 4 > _MAX_TERM_BYTES and len(value.encode()) > _MAX_TERM_BYTES

"""Is this tree one that can be asked at all? Answered before any compiler sees it, so that no route fails late."""

from query.filters import (
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
    leaves,
)
from query.regex import compile_pattern
from query.text_forms import text_form
from resources.errors import FilterValueError, UnknownFieldError
from resources.fields import Field, FieldSet, Kind, Scalar


def check(node: Filter, fields: FieldSet) -> None:
    """Raise UnknownFieldError, FilterValueError or RegularExpressionError for the first leaf that does not fit."""
    for leaf in leaves(node):
        _check_leaf(leaf, fields)


def _check_leaf(leaf: Leaf, fields: FieldSet) -> None:
    field = fields.require(leaf.field, "filter")
    if isinstance(leaf, HasAddress | LacksAddress):
        _check_address(field, leaf.text)
        return
    if field.kind is Kind.UNKNOWN or (field.kind is Kind.OTHER and not field.is_list):
        raise UnknownFieldError(field.name, "filter")
    match leaf:
        case Eq(_, value) | Ne(_, value) | Lt(_, value) | Le(_, value) | Gt(_, value) | Ge(_, value):
            _check_comparable(field, value)
        case In(_, values) | NotIn(_, values):
            for value in values:
                _check_comparable(field, value)
        case Matches(_, pattern) | NotMatches(_, pattern):
            if text_form(field.kind) is None:
                raise FilterValueError(field.name, pattern, "no pattern: the field has no text")
            compile_pattern(pattern)
        case Has(_, element) | Lacks(_, element):
            if not field.is_list:
                raise FilterValueError(field.name, element, "no element: the field is not a list")
            field.stored(element)
        case IsNull() | IsNotNull():
            pass


def _check_address(field: Field, text: str) -> None:
    if field.kind is not Kind.OTHER or field.is_list:
        raise FilterValueError(field.name, text, "no address: the field holds none")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise FilterValueError(field.name, text, "text of valid Unicode") from None


def _check_comparable(field: Field, value: Scalar) -> None:
    if field.is_list:
        raise FilterValueError(field.name, value, "an element that the list has or lacks")
    field.stored(value)

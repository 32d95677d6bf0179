"""Parses filters in text form, such as `status == "running" and be/memory > 2048`, to lists for
fleetlight.query.expressions.

The grammar is that of contracts/ganeti-query, 4; it is LALR, so the time is linear in the text.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedInput, UnexpectedToken, v_args

from fleetlight.query.errors import FilterTextError, RegularExpressionError
from fleetlight.query.regex import compile_pattern

Expression = list[Any]

_GRAMMAR = r"""
    ?start: either

    ?either: both ("or" both)*
    ?both: not ("and" not)*
    ?not: "not" not -> negation
        | condition
        | "(" either ")"

    condition: FIELD                        -> truth
             | FIELD COMPARISON value       -> comparison
             | value "in" FIELD             -> membership
             | value "not" "in" FIELD       -> no_membership
             | FIELD _SEARCH PATTERN        -> search
             | FIELD _NO_SEARCH PATTERN     -> no_search
             | FIELD _GLOB STRING           -> glob
             | FIELD _NO_GLOB STRING        -> no_glob
    ?value: STRING                          -> text
          | INTEGER                         -> number

    FIELD: /[A-Za-z][A-Za-z0-9_\/.]*/
    COMPARISON: /==|!=|<=|>=|<|>|=(?![~*])/
    _SEARCH: "=~"
    _NO_SEARCH: "!~"
    _GLOB: "=*"
    _NO_GLOB: "!*"
    INTEGER: /[+-]?[0-9]+/
    STRING: /"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'/s
    PATTERN: /m?(?:\/(?:[^\/\\]|\\.)*\/|#(?:[^#\\]|\\.)*#|\^(?:[^\^\\]|\\.)*\^|\|(?:[^|\\]|\\.)*\|)[si]*/s

    %import common.WS
    %ignore WS
"""

_FILTER_CHARACTERS = frozenset("!\"'()/<>=\\~ \t\n\r\v\f")
_GLOB_CHARACTERS = frozenset("*?")
_MAX_DIGITS = 18
_NAMES = {
    "FIELD": "a field",
    "COMPARISON": "a comparison such as ==",
    "INTEGER": "a whole number",
    "STRING": "a text in quotes",
    "PATTERN": "a pattern such as m/web/i",
    "_SEARCH": "=~",
    "_NO_SEARCH": "!~",
    "_GLOB": "=*",
    "_NO_GLOB": "!*",
    "LPAR": "(",
    "RPAR": ")",
    "AND": "and",
    "OR": "or",
    "NOT": "not",
    "IN": "in",
    "$END": "the end of the text",
}


@v_args(inline=True)
class _Expressions(Transformer[Token, Expression]):
    """Builds the expression of each rule of the grammar during parsing."""

    def either(self, *terms: Expression) -> Expression:
        return ["|", *terms]

    def both(self, *terms: Expression) -> Expression:
        return ["&", *terms]

    def negation(self, term: Expression) -> Expression:
        return ["!", term]

    def truth(self, field: Token) -> Expression:
        return ["?", str(field)]

    def comparison(self, field: Token, operator: Token, value: str | int) -> Expression:
        return ["==" if operator == "=" else str(operator), str(field), value]

    def membership(self, value: str | int, field: Token) -> Expression:
        return ["=[]", str(field), value]

    def no_membership(self, value: str | int, field: Token) -> Expression:
        return ["!", ["=[]", str(field), value]]

    def search(self, field: Token, pattern: Token) -> Expression:
        return ["=~", str(field), _pattern(pattern)]

    def no_search(self, field: Token, pattern: Token) -> Expression:
        return ["!", ["=~", str(field), _pattern(pattern)]]

    def glob(self, field: Token, text: Token) -> Expression:
        return ["=~", str(field), name_pattern(text[1:-1])]

    def no_glob(self, field: Token, text: Token) -> Expression:
        return ["!", ["=~", str(field), name_pattern(text[1:-1])]]

    def text(self, text: Token) -> str:
        return str(text[1:-1])

    def number(self, digits: Token) -> int:
        try:
            return int(digits)
        except ValueError:
            raise _UnusableTokenError(digits, "Expected a number of fewer digits") from None


@cache
def _parser() -> Lark:
    """The parser, built at the first call, since this takes longer than parsing most filters."""
    return Lark(_GRAMMAR, parser="lalr", transformer=_Expressions(), maybe_placeholders=False)


def parse_filter(text: str) -> Expression:
    """The expression of a text. Raises FilterTextError."""
    try:
        expression: Expression = _parser().parse(text)  # type: ignore[assignment]  # the transformer's result
    except UnexpectedInput as error:
        # Lark reports the end of the text at the last token.
        is_at_end = isinstance(error, UnexpectedToken) and error.token.type == "$END"
        line, column = _end(text) if is_at_end or error.line < 1 else (error.line, error.column)
        raise FilterTextError(text, line, column, _reason(error)) from None
    except _UnusableTokenError as error:
        raise FilterTextError(text, error.token.line or 1, error.token.column or 1, error.reason) from None
    return expression


def name_pattern(glob: str) -> str:
    """The regular expression for a name with `*` and `?`, which match characters other than dots.

    A name with further parts matches as well: `web*` finds `web1.example.com`.
    """
    parts = {"*": "[^.]*", "?": "[^.]"}
    return f"^{''.join(parts.get(character) or re.escape(character) for character in glob)}(\\..*)?$"


def of_named(name_field: str, condition: Expression) -> Expression:
    """The condition, only for items with a name.

    A missing value never excludes an item (contracts/ganeti-query, 3), so an item without a name, such as some
    reservations, would match any name.
    """
    return ["&", ["!=", name_field, ""], condition]


def from_arguments(
    arguments: Sequence[str], *, is_filter: bool = False, name_field: str = "name", is_numeric: bool = False
) -> Expression | None:
    """The expression for a command's arguments: names, perhaps with `*` and `?`, or one filter; None without any.

    is_filter: the argument is a filter; otherwise a single argument is one if it has a character that names do not
    have. is_numeric: items have numbers instead of names. Raises FilterTextError, also for a filter in more than one
    argument.
    """
    if is_filter or (len(arguments) == 1 and not _FILTER_CHARACTERS.isdisjoint(arguments[0])):
        if len(arguments) != 1:
            raise FilterTextError(" ".join(arguments), 1, 1, "Exactly one argument must be given as a filter")
        return parse_filter(arguments[0])
    if not arguments:
        return None
    if is_numeric:
        return ["|", *(["==", name_field, _number(argument)] for argument in arguments)]
    names: Expression = ["|", *(_name(argument, name_field) for argument in arguments)]
    # A condition on names alone is a lookup, which finds no item without a name.
    return (
        names if all(_GLOB_CHARACTERS.isdisjoint(argument) for argument in arguments) else of_named(name_field, names)
    )


def _number(argument: str) -> int:
    if not argument.isascii() or not argument.isdigit() or len(argument) > _MAX_DIGITS:
        raise FilterTextError(argument, 1, 1, f"Invalid job ID passed: {argument}")
    return int(argument)


def _name(argument: str, name_field: str) -> Expression:
    if _GLOB_CHARACTERS.isdisjoint(argument):
        return ["==", name_field, argument]
    return ["=~", name_field, name_pattern(argument)]


class _UnusableTokenError(Exception):
    """A well-formed token with an invalid value."""

    def __init__(self, token: Token, reason: str) -> None:
        super().__init__(reason)
        self.token = token
        self.reason = reason


def _pattern(token: Token) -> str:
    """The regular expression between two delimiters, with its flags at the beginning.

    A backslash escapes the delimiter, and is removed there; before any other character it stays.
    """
    text = token.removeprefix("m")
    delimiter, (inside, flags) = text[0], text[1:].rsplit(text[0], 1)
    pattern = re.sub(r"\\(.)", lambda found: found[1] if found[1] == delimiter else found[0], inside, flags=re.DOTALL)
    if flags:
        pattern = f"(?{''.join(sorted(flags))}){pattern}"
    try:
        compile_pattern(pattern)
    except RegularExpressionError as error:
        raise _UnusableTokenError(token, str(error)) from None
    return pattern


def _reason(error: UnexpectedInput) -> str:
    allowed = error.allowed if isinstance(error, UnexpectedCharacters) else getattr(error, "expected", ())
    names = sorted(_NAMES.get(name, name) for name in allowed or ())
    return f"Expected {', '.join(names)}" if names else "Unexpected end of text"


def _end(text: str) -> tuple[int, int]:
    """The line and the column after the last character."""
    lines = text.splitlines() or [""]
    return len(lines), len(lines[-1]) + 1

"""The one meaning of regular expressions, and their translations.

A pattern is *searched* for in a text, case-sensitively, with RE2's syntax and meaning: its time is linear in the text,
so no pattern hangs this program. `^` and `$` are the ends of the text, `.` is any code point except a newline. For
stores with another dialect, patterns of the subset in `regex_syntax` are translated, and others refused.
"""

import string
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Protocol, cast

import re2

from fleetlight.query.errors import NotExpressibleError, RegularExpressionError
from fleetlight.query.regex_syntax import ANY, Branch, Chars, Choice, Node, Repeat, Sequence, branches

_LUCENE = "Elasticsearch"
_POSTGRESQL = "PostgreSQL"
# index.max_regex_length of Elasticsearch, in UTF-16 units.
_LUCENE_MAX_LENGTH = 1000
# Send these with each expression: no syntax of Lucene's own, and a limit to the work of building states, beyond which
# Elasticsearch refuses the expression (docs/decisions/0006).
LUCENE_OPTIONS: Mapping[str, Any] = {"flags": "NONE", "max_determinized_states": 1000}
# Elasticsearch does not limit these: with 600 ranges a thousand states took 18 s, and `(a?){1000}` took 9 s (9.4.3).
# Within these limits no pattern was found that takes longer than a second.
_LUCENE_MAX_RANGES = 40
_LUCENE_MAX_REPEATED = 200
# DUPMAX of PostgreSQL's regular expressions.
_POSTGRESQL_MAX_REPEAT = 255
_POSTGRESQL_MAX_SIZE = 2000
_SPECIAL = frozenset(string.punctuation)
_ANYTHING = Repeat(ANY, 0, None)


class CompiledPattern(Protocol):
    def search(self, text: str) -> object | None:
        """A match anywhere in `text`; None if there is none."""


def _options() -> re2.Options:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    return options


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> CompiledPattern:
    """Compile a pattern, with a cache. Raises RegularExpressionError."""
    try:
        return cast(CompiledPattern, re2.compile(pattern, _options()))
    except re2.error as error:
        reason = error.args[0]
        raise RegularExpressionError(pattern, reason.decode() if isinstance(reason, bytes) else str(reason)) from None
    except UnicodeEncodeError:
        raise RegularExpressionError(pattern, "it is not valid Unicode") from None


@lru_cache(maxsize=256)
def to_lucene(pattern: str) -> str:
    """The Lucene expression that matches a whole term if and only if `pattern` is found in it.

    Send it with LUCENE_OPTIONS; Elasticsearch may still refuse it. Raises RegularExpressionError and
    NotExpressibleError.
    """
    compile_pattern(pattern)
    whole = Choice(tuple(_whole_text(branch) for branch in branches(pattern, _LUCENE)))
    if len(_ranges(whole)) > _LUCENE_MAX_RANGES or _repeated(whole) > _LUCENE_MAX_REPEATED:
        raise NotExpressibleError(_LUCENE, f"a pattern as complex as '{pattern}'")
    text = _render(whole, group="(")
    if len(text.encode("utf-16-le")) > 2 * _LUCENE_MAX_LENGTH:
        raise NotExpressibleError(_LUCENE, f"a pattern as long as '{pattern[:50]}…'")
    return text


@lru_cache(maxsize=256)
def to_postgres(pattern: str) -> str:
    """The PostgreSQL expression (an ARE, for `~`) that is found in the same texts as `pattern`.

    Raises RegularExpressionError and NotExpressibleError.
    """
    compile_pattern(pattern)
    if "\0" in pattern:
        raise NotExpressibleError(_POSTGRESQL, "a pattern with a NUL character")
    found = branches(pattern, _POSTGRESQL)
    for branch in found:
        if _size(branch.body) > _POSTGRESQL_MAX_SIZE or _most_repeats(branch.body) > _POSTGRESQL_MAX_REPEAT:
            raise NotExpressibleError(_POSTGRESQL, f"so many repetitions as in '{pattern[:50]}'")
    return "|".join(
        ("^" if branch.is_at_start else "") + _render(branch.body, group="(?:") + ("$" if branch.is_at_end else "")
        for branch in found
    )


def _whole_text(branch: Branch) -> Sequence:
    before = () if branch.is_at_start else (_ANYTHING,)
    after = () if branch.is_at_end else (_ANYTHING,)
    return Sequence((*before, *branch.body.parts, *after))


def _render(node: Node, group: str) -> str:
    """The expression of a tree without anchors; the dialects differ only in how a `group` begins."""
    match node:
        case Chars():
            return _render_chars(node)
        case Sequence(parts):
            return "".join(_render_atom(part, group) for part in parts) or f"{group})"
        case Choice(choices):
            return "|".join(_render(choice, group) for choice in choices)
        case Repeat(body, least, most):
            return _render_atom(body, group, bare=(Chars,)) + _render_bounds(least, most)
    raise AssertionError(f"{node} is an anchor")


def _render_atom(node: Node, group: str, bare: tuple[type, ...] = (Chars, Repeat)) -> str:
    """One item of a sequence; what is neither `bare` nor a group of nothing by itself gets a group around it."""
    text = _render(node, group)
    return text if isinstance(node, bare) or node == Sequence(()) else f"{group}{text})"


def _render_bounds(least: int, most: int | None) -> str:
    match least, most:
        case 0, None:
            return "*"
        case 1, None:
            return "+"
        case 0, 1:
            return "?"
        case _, None:
            return f"{{{least},}}"
    return f"{{{least}}}" if least == most else f"{{{least},{most}}}"


def _render_chars(chars: Chars) -> str:
    match chars:
        case Chars(((first, last),), False) if first == last:
            return _escape(first)
        case Chars(ranges, is_negated):
            if chars == ANY:
                return "."
            members = "".join(
                _escape(first) if first == last else f"{_escape(first)}-{_escape(last)}" for first, last in ranges
            )
            return f"[{'^' if is_negated else ''}{members}]"


def _escape(code_point: int) -> str:
    character = chr(code_point)
    return f"\\{character}" if character in _SPECIAL else character


def _ranges(node: Node) -> set[tuple[int, int]]:
    """The different ranges of all classes."""
    match node:
        case Sequence(nodes) | Choice(nodes):
            return {found for child in nodes for found in _ranges(child)}
        case Repeat(body):
            return _ranges(body)
        case Chars(ranges, is_negated) if is_negated or len(ranges) > 1:
            return set(ranges)
    return set()


def _repeated(node: Node, *, is_inside: bool = False) -> int:
    """Ranges inside of repetitions, once these are written out."""
    match node:
        case Sequence(nodes) | Choice(nodes):
            return sum(_repeated(child, is_inside=is_inside) for child in nodes)
        case Repeat(body, least, most):
            return _repeated(body, is_inside=True) * max(least if most is None else most, 1)
        case Chars(ranges, is_negated):
            return len(ranges) + is_negated if is_inside else 0
    return 0


def _size(node: Node) -> int:
    """Characters in the tree once its repetitions are written out."""
    match node:
        case Sequence(nodes) | Choice(nodes):
            return sum(_size(child) for child in nodes)
        case Repeat(body, least, most):
            return _size(body) * max(least if most is None else most, 1)
    return 1


def _most_repeats(node: Node) -> int:
    match node:
        case Sequence(nodes) | Choice(nodes):
            return max((_most_repeats(child) for child in nodes), default=0)
        case Repeat(body, least, most):
            return max(least, most or 0, _most_repeats(body))
    return 0

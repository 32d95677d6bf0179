"""Parses the subset of RE2's syntax with the same meaning in all databases to a tree.

The subset is small on purpose: other syntax is refused (NotExpressibleError), and another route answers. Patterns must
have been accepted by RE2. Not in the subset: flags, named groups, `\\b`, `\\x..`, `\\p..`, `\\Q..\\E`, named classes,
a brace that is no repetition. A lazy repetition matches the same texts as a greedy one.
Source: https://github.com/google/re2/wiki/Syntax
"""

import re
from dataclasses import dataclass
from itertools import product

from fleetlight.query.errors import NotExpressibleError

_MAX_CODE_POINT = 0x10FFFF
_REPETITION = re.compile(r"\{([0-9]+)(?:(,)([0-9]*))?\}")
_CONTROLS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
# RE2's Perl classes are ASCII only; `\s` has no vertical tab.
_PERL_CLASSES = {
    "d": ((0x30, 0x39),),
    "w": ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)),
    "s": ((0x09, 0x0A), (0x0C, 0x0D), (0x20, 0x20)),
}
_MAX_BRANCHES = 32
# RE2 takes a thousand. Each level costs some nested calls in a walk over the tree, beside those of the request.
_MAX_NESTING = 30


@dataclass(frozen=True, slots=True)
class Chars:
    """One character in the ranges (first and last code point), or in none of them."""

    ranges: tuple[tuple[int, int], ...]
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class Start:
    """The start of the text, never of a line."""


@dataclass(frozen=True, slots=True)
class End:
    """The end of the text, not before a newline there."""


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Choice:
    branches: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`body` from `least` to `most` times; without limit if `most` is None."""

    body: "Node"
    least: int
    most: int | None


Node = Chars | Start | End | Sequence | Choice | Repeat

ANY = Chars(((0, _MAX_CODE_POINT),))
_DOT = Chars(((0x0A, 0x0A),), is_negated=True)


@dataclass(frozen=True, slots=True)
class Branch:
    """One way to match: `body` somewhere in the text, at its start, at its end, or all of it."""

    body: Sequence
    is_at_start: bool
    is_at_end: bool


def branches(pattern: str, target: str) -> tuple[Branch, ...]:
    """The alternatives of which one must be found, with their anchors removed.

    target: the compiler, for the error. Raises NotExpressibleError.
    """
    return tuple(_branch(parts, target) for parts in _distribute(_Parser(pattern, target).parse(), target))


def _branch(parts: tuple[Node, ...], target: str) -> Branch:
    first, last = 0, len(parts)
    while first < last and isinstance(parts[first], Start):
        first += 1
    while last > first and isinstance(parts[last - 1], End):
        last -= 1
    body = parts[first:last]
    if any(isinstance(part, Start | End) for part in body):
        raise NotExpressibleError(target, "an anchor inside a pattern")
    return Branch(Sequence(body), is_at_start=first > 0, is_at_end=last < len(parts))


def _distribute(node: Node, target: str) -> list[tuple[Node, ...]]:
    """Sequences of which one suffices in place of `node`; anchors are only at their ends."""
    match node:
        case Choice(choices):
            return [parts for choice in choices for parts in _distribute(choice, target)]
        case Sequence(parts):
            options = [_distribute(part, target) if _has_anchor(part) else [(part,)] for part in parts]
            count = 1
            for option in options:
                count *= len(option)
                if count > _MAX_BRANCHES:
                    raise NotExpressibleError(target, "so many anchors")
            return [tuple(part for parts in choice for part in parts) for choice in product(*options)]
        case Repeat() if _has_anchor(node):
            raise NotExpressibleError(target, "a repeated anchor")
    return [(node,)]


def _has_anchor(node: Node) -> bool:
    match node:
        case Start() | End():
            return True
        case Sequence(nodes) | Choice(nodes):
            return any(_has_anchor(child) for child in nodes)
        case Repeat(body):
            return _has_anchor(body)
    return False


class _Parser:
    """Recursive descent: choice > sequence > repetition > atom."""

    def __init__(self, pattern: str, target: str) -> None:
        self._pattern = pattern
        self._target = target
        self._at = 0
        self._nesting = 0

    def parse(self) -> Node:
        node = self._choice()
        if self._at < len(self._pattern):
            raise self._refuse("an unbalanced ')'")
        return node

    def _refuse(self, what: str) -> NotExpressibleError:
        return NotExpressibleError(self._target, f"{what} in '{self._pattern}'")

    def _peek(self, text: str) -> bool:
        return self._pattern.startswith(text, self._at)

    def _take(self, text: str) -> bool:
        if not self._peek(text):
            return False
        self._at += len(text)
        return True

    def _next(self) -> str:
        if self._at >= len(self._pattern):
            raise self._refuse("an unfinished expression")
        character = self._pattern[self._at]
        self._at += 1
        return character

    def _choice(self) -> Node:
        found = [self._sequence()]
        while self._take("|"):
            found.append(self._sequence())
        return found[0] if len(found) == 1 else Choice(tuple(found))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._at < len(self._pattern) and not self._peek("|") and not self._peek(")"):
            parts.append(self._repetition())
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _repetition(self) -> Node:
        atom = self._atom()
        bounds = self._bounds()
        if bounds is None:
            return atom
        self._take("?")
        if self._bounds() is not None:
            raise self._refuse("a repetition of a repetition")
        least, most = bounds
        return Sequence(()) if most == 0 else Repeat(atom, least, most)

    def _bounds(self) -> tuple[int, int | None] | None:
        for operator, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(operator):
                return bounds
        found = _REPETITION.match(self._pattern, self._at)
        if found is None:
            return None
        self._at = found.end()
        least = int(found[1])
        if found[2] is None:
            return least, least
        return least, int(found[3]) if found[3] else None

    def _atom(self) -> Node:
        match character := self._next():
            case "(":
                return self._group()
            case "[":
                return self._class()
            case ".":
                return _DOT
            case "^":
                return Start()
            case "$":
                return End()
            case "\\":
                return self._escape()
            case "*" | "+" | "?" | "{":
                raise self._refuse(f"a lone '{character}'")
        return _one(character)

    def _group(self) -> Node:
        if self._peek("?") and not self._take("?:"):
            raise self._refuse("a group with '(?'")
        if self._nesting == _MAX_NESTING:
            raise self._refuse("groups nested so deeply")
        self._nesting += 1
        node = self._choice()
        self._nesting -= 1
        if not self._take(")"):
            raise self._refuse("an unbalanced '('")
        return node

    def _escape(self) -> Node:
        match character := self._next():
            case "A":
                return Start()
            case "z":
                return End()
            case "d" | "w" | "s":
                return Chars(_PERL_CLASSES[character])
            case "D" | "W" | "S":
                return Chars(_PERL_CLASSES[character.lower()], is_negated=True)
        return _one(self._escaped(character))

    def _escaped(self, character: str) -> str:
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character.isascii() and not character.isalnum():
            return character
        raise self._refuse(f"'\\{character}'")

    def _class(self) -> Chars:
        is_negated = self._take("^")
        if self._peek("]"):
            raise self._refuse("a class that begins with ']'")
        ranges: list[tuple[int, int]] = []
        while not self._take("]"):
            if self._peek("-") and ranges and not self._peek("-]"):
                raise self._refuse("a '-' inside a class")
            if self._peek("\\") and self._pattern[self._at + 1 : self._at + 2] in _PERL_CLASSES:
                self._at += 1
                ranges.extend(_PERL_CLASSES[self._next()])
                if self._peek("-") and not self._peek("-]"):
                    raise self._refuse("a '-' inside a class")
                continue
            first = last = self._class_character()
            if self._peek("-") and not self._peek("-]"):
                self._at += 1
                last = self._class_character()
            ranges.append((ord(first), ord(last)))
        return Chars(tuple(ranges), is_negated)

    def _class_character(self) -> str:
        character = self._next()
        if character == "[":
            raise self._refuse("a '[' inside a class")
        return self._escaped(self._next()) if character == "\\" else character


def _one(character: str) -> Chars:
    return Chars(((ord(character), ord(character)),))

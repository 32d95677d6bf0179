"""What a regular expression costs an engine that makes it deterministic first, as Lucene does.

`.*a.{20}` is short, but its deterministic automaton has a million states; Elasticsearch answers such a pattern with an
error. Counted here beforehand, so that another route can answer. The construction is Glushkov's (one state for each
character of the pattern) followed by the subset construction; a set of positions is an int used as a bit set.
Source: Glushkov, "The abstract theory of automata", 1961; Rabin and Scott, 1959.
"""

from query.regex_syntax import Chars, Choice, Node, Repeat, Sequence

# Finding out must not cost more than what it finds out: a pattern of 80 characters can have millions of links, which
# took seconds to make. This many take some milliseconds.
_LINKS_PER_EFFORT = 8
# Nor may the steps from set to set: with hundreds of different characters there are as many from each.
_STEPS_PER_EFFORT = 16


def determinization_effort(node: Node, limit: int) -> int | None:
    """The sizes of all state sets, added up; None when they exceed `limit`. The tree has no anchors."""
    positions = _Positions(limit)
    try:
        start = positions.add(node).first
        letters = positions.letters()
    except _TooLargeError:
        return None
    effort = 0
    steps_left = limit * _STEPS_PER_EFFORT
    seen = {start}
    waiting = [start]  # sets of positions that may be matched next
    while waiting:
        state = waiting.pop()
        effort += state.bit_count()
        if effort > limit or steps_left < 0:
            return None
        for letter in letters:
            following = 0
            accepting = state & letter
            steps_left -= 1 + accepting.bit_count()
            for position in _bits(accepting):
                following |= positions.follow[position]
            if following not in seen:
                seen.add(following)
                waiting.append(following)
    return effort


class _TooLargeError(Exception):
    """More positions, links between them, or different characters than the limit allows."""


class _Part:
    """first, last: positions that a match of the part can begin and end with."""

    __slots__ = ("first", "is_optional", "last")

    def __init__(self, first: int, last: int, *, is_optional: bool) -> None:
        self.first = first
        self.last = last
        self.is_optional = is_optional


class _Positions:
    """follow: for each position, those that can come next."""

    def __init__(self, limit: int) -> None:
        self.follow: list[int] = []
        self._chars: list[Chars] = []
        self._limit = limit
        self._links_left = limit * _LINKS_PER_EFFORT

    def add(self, node: Node) -> _Part:
        match node:
            case Chars():
                if len(self._chars) >= self._limit:
                    raise _TooLargeError
                self._chars.append(node)
                self.follow.append(0)
                bit = 1 << (len(self._chars) - 1)
                return _Part(bit, bit, is_optional=False)
            case Sequence(parts):
                whole = _empty()
                for child in parts:
                    whole = self._join(whole, self.add(child))
                return whole
            case Choice(choices):
                whole = _Part(0, 0, is_optional=False)
                for choice in choices:
                    part = self.add(choice)
                    whole.first |= part.first
                    whole.last |= part.last
                    whole.is_optional |= part.is_optional
                return whole
            case Repeat(body, least, most):
                return self._repeat(body, least, most)
        raise AssertionError(f"{node} is an anchor")

    def _repeat(self, body: Node, least: int, most: int | None) -> _Part:
        whole = _empty()
        for _ in range(least):
            whole = self._join(whole, self.add(body))
        if most is None:
            loop = self.add(body)
            self._link(loop.last, loop.first)
            loop.is_optional = True
            return self._join(whole, loop)
        for _ in range(most - least):
            part = self.add(body)
            part.is_optional = True
            whole = self._join(whole, part)
        return whole

    def _join(self, left: _Part, right: _Part) -> _Part:
        self._link(left.last, right.first)
        return _Part(
            left.first | right.first if left.is_optional else left.first,
            left.last | right.last if right.is_optional else right.last,
            is_optional=left.is_optional and right.is_optional,
        )

    def _link(self, from_positions: int, to_positions: int) -> None:
        self._links_left -= from_positions.bit_count()
        if self._links_left < 0:
            raise _TooLargeError
        for position in _bits(from_positions):
            self.follow[position] |= to_positions

    def letters(self) -> set[int]:
        """For each set of characters that the pattern cannot tell apart: the positions that accept them.

        Raises _TooLargeError.
        """
        edges = {0}
        for chars in set(self._chars):
            for first, last in chars.ranges:
                edges |= {first, last + 1}
        comparisons = len(edges) * sum(len(chars.ranges) for chars in set(self._chars))
        if comparisons + len(edges) * len(self._chars) > self._limit * _STEPS_PER_EFFORT:
            raise _TooLargeError
        accepting = {chars: [edge for edge in edges if chars.accepts(edge)] for chars in set(self._chars)}
        masks = dict.fromkeys(edges, 0)
        for position, chars in enumerate(self._chars):
            for edge in accepting[chars]:
                masks[edge] |= 1 << position
        return set(masks.values())


def _empty() -> _Part:
    return _Part(0, 0, is_optional=True)


def _bits(mask: int) -> list[int]:
    found = []
    while mask:
        lowest = mask & -mask
        found.append(lowest.bit_length() - 1)
        mask ^= lowest
    return found

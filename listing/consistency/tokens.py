"""Tokens: a finished operation hands out a token, by which a later list includes the change (`at-least`).

A token names an instance and its revision, not the sequence of the change: the relay assigns that after the operation
has ended, and it would show callers how busy a cell is.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fleetlight.cells.model import InstanceRow
from fleetlight.listing.errors import TokenError

_TOKEN = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):([1-9][0-9]{0,17})")
_SEPARATOR = re.compile(r"[\s,]+")
_MAX_TOKENS = 50


@dataclass(frozen=True, slots=True)
class ChangeToken:
    """A demand for at least this revision of an instance, and for every earlier change of its cell."""

    instance_uuid: str
    revision: int

    @classmethod
    def of(cls, row: InstanceRow) -> "ChangeToken":
        return cls(row.uuid, row.revision)

    def __str__(self) -> str:
        return f"{self.instance_uuid}:{self.revision}"


def parse_tokens(text: str) -> Sequence[ChangeToken]:
    """Parse one or more tokens, separated by commas or spaces. Raises TokenError for malformed or too many tokens."""
    words = dict.fromkeys(filter(None, _SEPARATOR.split(text)))
    if not 1 <= len(words) <= _MAX_TOKENS:
        raise TokenError(f"at-least needs 1 to {_MAX_TOKENS} tokens, as finished operations gave them out")
    tokens = []
    for word in words:
        found = _TOKEN.fullmatch(word)
        if found is None:
            raise unknown_token(word)
        tokens.append(ChangeToken(found[1], int(found[2])))
    return tokens


def unknown_token(token: str) -> TokenError:
    """Make the error for a token that no operation handed out, or only to another project: both look the same."""
    return TokenError(f"no finished operation has given out the token {token!r}")

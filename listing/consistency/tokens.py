"""Tokens: a finished operation hands one out, so that a request can have lists include it (`at-least`).

It names an instance and its revision, which the caller knows anyway: the sequence of the change is not known when the
operation ends, since the relay gives it out later, and would show how busy a cell is.
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
    """At least this revision of this instance, and whatever its cell changed before."""

    instance_uuid: str
    revision: int

    @classmethod
    def of(cls, row: InstanceRow) -> "ChangeToken":
        return cls(row.uuid, row.revision)

    def __str__(self) -> str:
        return f"{self.instance_uuid}:{self.revision}"


def parse_tokens(text: str) -> Sequence[ChangeToken]:
    """One or more tokens with commas or spaces between them. Raises TokenError."""
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
    """The refusal of a token that was never handed out, or only to another project: the two look the same."""
    return TokenError(f"no finished operation has given out the token {token!r}")

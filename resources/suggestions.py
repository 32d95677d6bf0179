"""Suggestions for unknown names."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'name'?`, for the end of an error about `name`; empty if no known name is similar."""
    close = get_close_matches(name, list(known), n=1)
    return f"; did you mean '{close[0]}'?" if close else ""

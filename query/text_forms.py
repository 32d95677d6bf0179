"""The text that a pattern is searched for in, where a field is no text itself; every store makes the same."""

from collections.abc import Callable
from typing import Any

from fleetlight.resources.fields import Kind, from_microseconds


def text_form(kind: Kind) -> Callable[[Any], str] | None:
    """How a stored value of this kind is written; None for kinds that patterns cannot be about.

    A time is written as a database shows it: UTC, to the second, `YYYY-MM-DD HH:MM:SS`.
    """
    return _FORMS.get(kind)


def time_text(microseconds: int) -> str:
    return from_microseconds(microseconds).replace(microsecond=0, tzinfo=None).isoformat(sep=" ")


_FORMS: dict[Kind, Callable[[Any], str]] = {
    Kind.TEXT: str,
    Kind.NUMBER: str,
    Kind.UNIT: str,
    Kind.TIMESTAMP: time_text,
}

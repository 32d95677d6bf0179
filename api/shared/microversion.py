"""Negotiation of the microversion (contracts/nova-servers, section 2)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.datastructures import Headers

from fleetlight.api.http.errors import MicroversionSyntaxError, UnsupportedMicroversionError
from fleetlight.views.compute.view import NEWEST_MICROVERSION

OLDEST = (2, 1)
NEWEST = NEWEST_MICROVERSION
STANDARD_HEADER = "OpenStack-API-Version"
LEGACY_HEADER = "X-OpenStack-Nova-API-Version"
_SERVICE = "compute"
_VERSION = re.compile(r"([1-9][0-9]*)\.([1-9][0-9]*|0)")
# Far more digits than any version will ever have, and few enough for int() to accept.
_MAX_LENGTH = 100


@dataclass(frozen=True, slots=True, order=True)
class Microversion:
    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


def negotiate(headers: Headers) -> Microversion:
    """The microversion that a request asks for; the oldest when it asks for none.

    Raises MicroversionSyntaxError, UnsupportedMicroversionError.
    """
    text = _standard(headers.getlist(STANDARD_HEADER))
    if text is None:
        text = _legacy(headers.getlist(LEGACY_HEADER))
    return Microversion(*OLDEST) if text is None else parse_version(text)


def parse_version(text: str) -> Microversion:
    """The microversion that `text` names, also as "latest".

    Raises MicroversionSyntaxError, UnsupportedMicroversionError.
    """
    if text == "latest":
        return Microversion(*NEWEST)
    match = _VERSION.fullmatch(text)
    if match is None or len(text) > _MAX_LENGTH:
        raise MicroversionSyntaxError(text)
    version = Microversion(int(match[1]), int(match[2]))
    if not Microversion(*OLDEST) <= version <= Microversion(*NEWEST):
        raise UnsupportedMicroversionError(text, str(Microversion(*OLDEST)), str(Microversion(*NEWEST)))
    return version


def response_headers(version: str) -> list[tuple[str, str]]:
    """What every answer says about the microversion that it was given in."""
    return [
        (STANDARD_HEADER, f"{_SERVICE} {version}"),
        (LEGACY_HEADER, version),
        ("Vary", STANDARD_HEADER),
        ("Vary", LEGACY_HEADER),
    ]


def _standard(values: Sequence[str]) -> str | None:
    """The last entry for our service, of entries for several services."""
    for entry in reversed(",".join(values).split(",")):
        words = entry.split(None, 1)
        if len(words) == 2 and words[0].lower() == _SERVICE:
            return words[1].strip()
    return None


def _legacy(values: Sequence[str]) -> str | None:
    """The last entry, also an empty one, which is no version."""
    return ",".join(values).split(",")[-1].strip() if values else None

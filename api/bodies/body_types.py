"""Types of fields that several bodies have (contracts/nova-rest, section 0)."""

import unicodedata
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from fleetlight.api.bodies.request_body import MAX_INTEGER, BodyInteger

_UUID = r"^[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}$"


def is_printable(text: str) -> str:
    if any(category[0] == "C" or category in {"Zl", "Zp"} for category in map(unicodedata.category, text)):
        raise PydanticCustomError("not_printable", "has characters that cannot be printed")
    return text


def _has_no_blank_ends(text: str) -> str:
    if text != text.strip():
        raise PydanticCustomError("blank_ends", "has blanks at its ends")
    return text


def _without_blank_ends(text: str) -> str:
    if not text.strip():
        raise PydanticCustomError("blank", "is blank")
    return text.strip()


def _is_unique(values: list[str]) -> list[str]:
    return list(dict.fromkeys(values))


Name = Annotated[
    str, Field(min_length=1, max_length=255), AfterValidator(is_printable), AfterValidator(_has_no_blank_ends)
]
NameWithBlanks = Annotated[
    str, Field(min_length=1, max_length=255), AfterValidator(is_printable), AfterValidator(_without_blank_ends)
]
"""A name; blanks at its ends are removed."""
Description = Annotated[str, Field(max_length=255), AfterValidator(is_printable)] | None
MetadataKey = Annotated[str, Field(pattern=r"^[a-zA-Z0-9\-_:. ]{1,255}$")]
Metadata = dict[MetadataKey, Annotated[str, Field(max_length=255)]]
Tag = Annotated[str, Field(min_length=1, max_length=60, pattern=r"^[^,/]*$")]
Tags = Annotated[list[Tag], Field(max_length=50), AfterValidator(_is_unique)]
Fqdn = Annotated[str, Field(pattern=r"^[a-zA-Z0-9\-._]{1,255}$")]
UuidText = Annotated[str, Field(pattern=_UUID)]
ProjectId = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[a-zA-Z0-9\-._]*$")]
Count = Annotated[BodyInteger, Field(ge=0, le=MAX_INTEGER)]
PositiveCount = Annotated[BodyInteger, Field(ge=1, le=MAX_INTEGER)]


def one_item(value: object) -> object:
    if isinstance(value, dict) and len(value) != 1:
        raise PydanticCustomError("notone_item", "must have exactly one item")
    return value


OneItem = Annotated[Metadata, BeforeValidator(one_item)]

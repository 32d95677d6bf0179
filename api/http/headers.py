"""A header of requests or answers, as the OpenAPI document shows it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Header:
    """schema: of its value, as JSON Schema. is_required: whether it is always there, or has to be."""

    name: str
    description: str
    schema: Mapping[str, Any]
    is_required: bool = False

    def parameter(self) -> dict[str, Any]:
        """The header of a request."""
        return {"name": self.name, "in": "header", **self.response_header()}

    def response_header(self) -> dict[str, Any]:
        """The header of an answer; its name is the key under which this stands."""
        return {"description": self.description, "required": self.is_required, "schema": dict(self.schema)}

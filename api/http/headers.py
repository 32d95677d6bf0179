"""Descriptions of HTTP headers for the OpenAPI document."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Header:
    """A header. schema: JSON Schema of its value. is_required: whether every request or answer must have it."""

    name: str
    description: str
    schema: Mapping[str, Any]
    is_required: bool = False

    def parameter(self) -> dict[str, Any]:
        """Describe it as a header of requests."""
        return {"name": self.name, "in": "header", **self.response_header()}

    def response_header(self) -> dict[str, Any]:
        """Describe it as a header of answers, without its name, which is the key there."""
        return {"description": self.description, "required": self.is_required, "schema": dict(self.schema)}

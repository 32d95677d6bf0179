"""Answers of handlers: JSON, or no content."""

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response


def json_answer(document: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(document), status, headers, media_type="application/json")


def empty_answer(status: int, headers: Mapping[str, str] | None = None) -> Response:
    return Response(b"", status, headers, media_type="application/json")

"""Secrets in the bodies that msgspec reads: fields of `pydantic.SecretStr`, which no log, text or JSON shows."""

from typing import Any

import msgspec
from pydantic import SecretStr


def to_secret(kind: type, value: Any) -> SecretStr:
    """The `dec_hook` of a decoder. Raises msgspec.ValidationError, and NotImplementedError for any other type."""
    if kind is not SecretStr:
        raise NotImplementedError(kind)
    if not isinstance(value, str):
        raise msgspec.ValidationError("Expected `str`")
    return SecretStr(value)


def schema_of_secret(kind: type) -> dict[str, Any]:
    """The `schema_hook` of a schema, in the words of pydantic's. Raises NotImplementedError for any other type."""
    if kind is not SecretStr:
        raise NotImplementedError(kind)
    return {"type": "string", "format": "password", "writeOnly": True}

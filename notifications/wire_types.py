"""Types of payload fields: what the wire's text means, and how it is written back."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

# Nova takes any spelling that Python's uuid module reads; dashes are usual.
Uuid = Annotated[str, Field(pattern=r"^[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}$")]

# What every database and index can hold.
Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63)]

VmState = Literal[
    "active",
    "building",
    "deleted",
    "error",
    "paused",
    "rescued",
    "resized",
    "shelved",
    "shelved_offloaded",
    "soft-delete",
    "stopped",
    "suspended",
]
PowerState = Literal["pending", "running", "paused", "shutdown", "crashed", "suspended"]
DiskConfig = Literal["AUTO", "MANUAL"]

# With their zones some texts name moments that UTC has no date for: `0001-01-01T00:00:00+14:00`.
FIRST_MOMENT = datetime.min.replace(tzinfo=UTC)
LAST_MOMENT = datetime.max.replace(tzinfo=UTC)


def _seconds(moment: datetime) -> str:
    """Nova's form: whole seconds. A fraction, which Nova never sends, is not dropped."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def _microseconds(moment: datetime) -> str:
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


class _WireTime:
    """A time with its zone: ISO text on the wire, an aware datetime in Python. No Python code runs to read one."""

    def __init__(self, to_text: Callable[[datetime], str]) -> None:
        self._to_text = to_text

    def __get_pydantic_core_schema__(self, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        # The pattern keeps out what pydantic would also read as a time, such as "1700000000".
        text = core_schema.str_schema(strict=True, pattern=r"^\d{4}-\d\d-\d\d[T ]\d\d:")
        parsed, given = (
            core_schema.datetime_schema(strict=strict, tz_constraint="aware", ge=FIRST_MOMENT, le=LAST_MOMENT)
            for strict in (False, True)
        )
        return core_schema.union_schema(
            [core_schema.chain_schema([text, parsed]), given],
            mode="left_to_right",
            custom_error_type="wire_time",
            custom_error_message="a time with its zone is needed, in the years 1 to 9999 of UTC",
            serialization=core_schema.plain_serializer_function_ser_schema(
                self._to_text, return_schema=core_schema.str_schema(), when_used="json-unless-none"
            ),
        )

    def __get_pydantic_json_schema__(self, _schema: CoreSchema, _handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "format": "date-time"}


WireTime = Annotated[datetime, _WireTime(_seconds)]
"""A time of Nova's: `2026-11-21T10:00:00Z`."""

PreciseTime = Annotated[datetime, _WireTime(_microseconds)]
"""A time of ours: `2026-11-21T10:00:00.000001Z`."""

"""The query parameters of the server lists in one table, and the checks of a query string by it.

Facts: contracts/nova-servers, sections 3 and 4. A new filter is a row of `PARAMETERS`.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum

from fleetlight.api.http.errors import BadRequestError, ParameterError
from fleetlight.api.http.query_string import QueryString
from fleetlight.query.errors import RegularExpressionError
from fleetlight.query.filters import EVERYTHING, Eq, Filter, Has, In, Lacks, Matches, all_of, any_of
from fleetlight.query.regex import compile_pattern

# A day may have one digit after a dash; absent parts are the first of their kind.
_FORM = re.compile(
    r"(?P<year>\d{4})"
    r"(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2}))?|(?P<month_2>\d{2})(?P<day_2>\d{2}))?"
    r"(?:[ T](?P<hour>\d{2})(?::?(?P<minute>\d{2})(?::?(?P<second>\d{1,2})(?:[.,](?P<fraction>\d+))?)?)?"
    r"(?:Z|(?P<sign>[+-])(?P<zone_hour>\d{2}):?(?P<zone_minute>\d{2})?)?)?",
    re.ASCII,
)


def parse_iso_time(text: str) -> datetime:
    """Parse a moment; without a zone it is in UTC. Raises ValueError for any other text."""
    form = _FORM.fullmatch(text)
    if form is None:
        raise ValueError(f"not a time: {text}")
    day = form["day"] or form["day_2"]
    if form["hour"] and not day:
        raise ValueError(f"a time of no day: {text}")
    zone = timedelta(hours=int(form["zone_hour"] or 0), minutes=int(form["zone_minute"] or 0))
    try:
        return datetime(
            int(form["year"]),
            int(form["month"] or form["month_2"] or 1),
            int(day or 1),
            int(form["hour"] or 0),
            int(form["minute"] or 0),
            int(form["second"] or 0),
            int((form["fraction"] or "")[:6].ljust(6, "0")),
            timezone(-zone if form["sign"] == "-" else zone),
        ).astimezone(UTC)
    except OverflowError as error:  # by the zone, before the first year or behind the last
        raise ValueError(f"outside of all years: {text}") from error


FORBIDDEN = frozenset(
    {
        "block_device_mapping",
        "services",
        "metadata",
        "system_metadata",
        "info_cache",
        "security_groups",
        "pci_devices",
    }
)
UNKNOWN_IS_AN_ERROR_SINCE = 75
TRUE_WORDS = frozenset({"1", "t", "true", "on", "y", "yes"})
FALSE_WORDS = frozenset({"0", "f", "false", "off", "n", "no"})
_DIGITS = re.compile(r"[0-9]+")
_ADMIN_ONLY = None
# Four times as many as a server can have. Each tag is a condition, and a store that refuses a large statement (SQLite
# does from a thousand conditions on) would look unavailable.
_MAX_TAGS = 200


class ParameterKind(StrEnum):
    """The form of a parameter's values; checked for every caller, even one that may not use the parameter."""

    TEXT = "text"
    PATTERN = "pattern"
    TIME = "time"
    DIGITS = "digits"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One query parameter.

    since: microversion from which the name is known. public_since: microversion from which the parameter counts for
        callers that are no administrators; None: never.
    build: makes the filter of a value; None for parameters that other modules read (filter_and_order, paging).
    """

    name: str
    kind: ParameterKind
    since: int = 1
    public_since: int | None = _ADMIN_ONLY
    build: Callable[[str], Filter] | None = None


def _exact(field: str) -> Callable[[str], Filter]:
    return lambda value: Eq(field, value)


def _flag(field: str) -> Callable[[str], Filter]:
    return lambda value: Eq(field, strict_bool(field, value))


def _pattern(field: str) -> Callable[[str], Filter]:
    def build(value: str) -> Filter:
        compile_pattern(value)  # raises for a malformed pattern, since not every parameter was checked
        return Matches(field, value)

    return build


def _pattern_of_number(field: str, numbers: Iterable[int]) -> Callable[[str], Filter]:
    """Make a filter of a number by a pattern of its decimal text. numbers: all possible values."""
    texts = [(number, str(number)) for number in numbers]

    def build(value: str) -> Filter:
        pattern = compile_pattern(value)
        return In(field, tuple(number for number, text in texts if pattern.search(text)))

    return build


def _pattern_of_flag(field: str) -> Callable[[str], Filter]:
    """Make a filter of a flag by a pattern of its text in databases, 1 or 0."""

    def build(value: str) -> Filter:
        pattern = compile_pattern(value)
        return any_of(*(Eq(field, flag) for flag, text in ((True, "1"), (False, "0")) if pattern.search(text)))

    return build


def _tags(name: str, since: int, combine: Callable[..., Filter], leaf: Callable[[str, str], Filter]) -> Parameter:
    def build(value: str) -> Filter:
        tags = dict.fromkeys(value.split(","))
        if len(tags) > _MAX_TAGS:
            raise ParameterError(name, value, f"Must not name more than {_MAX_TAGS} tags.")
        return combine(*(leaf("tags", tag) for tag in tags))

    return Parameter(name, ParameterKind.PATTERN, since=since, public_since=since, build=build)


def _no_effect(_value: str) -> Filter:
    return EVERYTHING


_PAGING = (
    Parameter("limit", ParameterKind.DIGITS, public_since=1),
    Parameter("marker", ParameterKind.TEXT, public_since=1),
    Parameter("sort_key", ParameterKind.TEXT, public_since=1),
    Parameter("sort_dir", ParameterKind.TEXT, public_since=1),
)
_SCOPE = (
    Parameter("all_tenants", ParameterKind.TEXT, public_since=1),
    Parameter("project_id", ParameterKind.TEXT),
    Parameter("tenant_id", ParameterKind.TEXT),
    Parameter("deleted", ParameterKind.TEXT),
    # An extension of ours: lists show reservations only on request.
    Parameter("forthcoming", ParameterKind.TEXT, public_since=1),
    Parameter("soft_deleted", ParameterKind.TEXT),
    Parameter("changes-since", ParameterKind.TIME, public_since=1),
    Parameter("changes-before", ParameterKind.TIME, since=66, public_since=66),
)
_STATES = (
    Parameter("status", ParameterKind.TEXT, public_since=1),
    Parameter("vm_state", ParameterKind.TEXT, public_since=83, build=_exact("vm_state")),
    Parameter("task_state", ParameterKind.TEXT, public_since=83, build=_exact("task_state")),
    Parameter("power_state", ParameterKind.PATTERN, public_since=83, build=_pattern_of_number("power_state", range(8))),
    Parameter("progress", ParameterKind.PATTERN, public_since=83, build=_pattern_of_number("progress", range(101))),
    Parameter("locked", ParameterKind.TEXT, since=73, public_since=73, build=_flag("locked")),
)
_COLUMNS = (
    Parameter("access_ip_v4", ParameterKind.PATTERN, build=_pattern("access_ip_v4")),
    Parameter("access_ip_v6", ParameterKind.PATTERN, build=_pattern("access_ip_v6")),
    Parameter("auto_disk_config", ParameterKind.PATTERN, build=_pattern_of_flag("auto_disk_config")),
    Parameter("availability_zone", ParameterKind.PATTERN, public_since=83, build=_pattern("availability_zone")),
    Parameter("config_drive", ParameterKind.PATTERN, public_since=83, build=_pattern("config_drive")),
    Parameter("created_at", ParameterKind.PATTERN, public_since=83, build=_pattern("created_at")),
    Parameter("description", ParameterKind.PATTERN, build=_no_effect),
    Parameter("display_description", ParameterKind.PATTERN, build=_pattern("display_description")),
    Parameter("display_name", ParameterKind.PATTERN, build=_pattern("display_name")),
    Parameter("flavor", ParameterKind.PATTERN, public_since=1, build=_exact("flavor_id")),
    Parameter("host", ParameterKind.TEXT, build=_exact("host")),
    Parameter("hostname", ParameterKind.PATTERN, public_since=90, build=_pattern("hostname")),
    Parameter("image", ParameterKind.TEXT, public_since=1, build=_exact("image_ref")),
    Parameter("image_ref", ParameterKind.TEXT, build=_exact("image_ref")),
    Parameter("kernel_id", ParameterKind.PATTERN, build=_pattern("kernel_id")),
    Parameter("key_name", ParameterKind.PATTERN, public_since=83, build=_pattern("key_name")),
    Parameter("launch_index", ParameterKind.TEXT, build=_pattern("launch_index")),
    Parameter("launched_at", ParameterKind.PATTERN, public_since=83, build=_pattern("launched_at")),
    Parameter("locked_by", ParameterKind.PATTERN, build=_pattern("locked_by")),
    Parameter("name", ParameterKind.PATTERN, public_since=1, build=_pattern("display_name")),
    Parameter("node", ParameterKind.PATTERN, build=_pattern("node")),
    Parameter("ramdisk_id", ParameterKind.PATTERN, build=_pattern("ramdisk_id")),
    Parameter("reservation_id", ParameterKind.PATTERN, public_since=1, build=_pattern("reservation_id")),
    Parameter("root_device_name", ParameterKind.PATTERN, build=_pattern("root_device_name")),
    Parameter("terminated_at", ParameterKind.PATTERN, public_since=83, build=_pattern("terminated_at")),
    Parameter("user_id", ParameterKind.TEXT, public_since=83, build=_exact("user_id")),
)
_TAGS = (
    _tags("tags", 26, all_of, Has),
    _tags("tags-any", 26, any_of, Has),
    _tags("not-tags", 26, any_of, Lacks),
    _tags("not-tags-any", 26, all_of, Lacks),
)
# filter_and_order combines the results of these.
_IDENTITY = (
    Parameter("ip", ParameterKind.PATTERN, public_since=1),
    Parameter("ip6", ParameterKind.PATTERN, public_since=5),
    Parameter("uuid", ParameterKind.TEXT),
)
PARAMETERS = {parameter.name: parameter for parameter in (*_PAGING, *_SCOPE, *_STATES, *_COLUMNS, *_TAGS, *_IDENTITY)}
PAGING_NAMES = frozenset(parameter.name for parameter in _PAGING)
REPEATABLE = frozenset({"status", "sort_key", "sort_dir"})


def accept(query: QueryString, minor: int, *, is_admin: bool) -> QueryString:
    """Check every value, and remove parameters that do not count at microversion 2.`minor` for this caller.

    Raises BadRequestError for a value that its parameter cannot have, an unknown name from 2.75, and a name that
    is no filter at all.
    """
    kept = []
    for name, value in query.pairs:
        parameter = PARAMETERS.get(name)
        if parameter is not None and minor >= parameter.since:
            _check(parameter, value)
            if is_admin or (parameter.public_since is not None and minor >= parameter.public_since):
                kept.append((name, value))
        elif name in FORBIDDEN or name.startswith("_"):
            if is_admin:
                raise BadRequestError(f"Invalid filter: it is not possible to filter servers by '{name}'")
        elif minor >= UNKNOWN_IS_AN_ERROR_SINCE:
            raise BadRequestError(f"Additional query parameters are not allowed ('{name}' was unexpected)")
    return QueryString(kept)


def known(query: QueryString, minor: int) -> QueryString:
    """Keep the parameters for the link to the next page: those known at microversion 2.`minor`, even if ignored."""
    return QueryString(
        [
            (name, value)
            for name, value in query.pairs
            if name in FORBIDDEN
            or name.startswith("_")
            or ((parameter := PARAMETERS.get(name)) is not None and minor >= parameter.since)
        ]
    )


def strict_bool(name: str, value: str) -> bool:
    """Parse one of the known words for true or false. Raises ParameterError for any other."""
    word = value.strip().lower()
    if word in TRUE_WORDS:
        return True
    if word in FALSE_WORDS:
        return False
    raise ParameterError(name, value, f"Must be one of: {', '.join(sorted(TRUE_WORDS | FALSE_WORDS))}.")


def parse_time(name: str, value: str) -> datetime:
    """Parse an ISO 8601 time, in UTC unless it names a zone. Raises ParameterError for any other text."""
    try:
        return parse_iso_time(value)
    except ValueError:
        raise ParameterError(name, value, "Must be an ISO 8601 time, such as 2026-11-21T10:00:00Z.") from None


def _check(parameter: Parameter, value: str) -> None:
    match parameter.kind:
        case ParameterKind.PATTERN:
            if not value:
                raise ParameterError(parameter.name, value, "Must not be empty.")
            try:
                compile_pattern(value)
            except RegularExpressionError as error:
                reason = f"Must be a regular expression (RE2 syntax): {error.reason}."
                raise ParameterError(parameter.name, value, reason) from error
        case ParameterKind.TIME:
            parse_time(parameter.name, value)
        case ParameterKind.DIGITS:
            if not _DIGITS.fullmatch(value):
                raise ParameterError(parameter.name, value, "Must be a whole number, 0 or more.")
        case ParameterKind.TEXT:
            pass

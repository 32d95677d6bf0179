"""The forms of a time that filters of lists take: those of ISO 8601 that Nova's own reader knows."""

import re
from datetime import UTC, datetime, timedelta, timezone

# A day may have one digit where dashes say what it is; what is left away is the first of its kind.
_FORM = re.compile(
    r"(?P<year>\d{4})"
    r"(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2}))?|(?P<month_2>\d{2})(?P<day_2>\d{2}))?"
    r"(?:[ T](?P<hour>\d{2})(?::?(?P<minute>\d{2})(?::?(?P<second>\d{1,2})(?:[.,](?P<fraction>\d+))?)?)?"
    r"(?:Z|(?P<sign>[+-])(?P<zone_hour>\d{2}):?(?P<zone_minute>\d{2})?)?)?",
    re.ASCII,
)


def parse_iso_time(text: str) -> datetime:
    """The moment in UTC; a time without a zone is in UTC. Raises ValueError for any other text."""
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

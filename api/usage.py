"""`GET /fleetlight/usage`: hours of running and reserved instances, by project, flavor and cell."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from starlette.responses import Response
from starlette.routing import Route as HttpRoute

from fleetlight.api.documented import ApiOperation
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.errors import BadRequestError
from fleetlight.api.http.query_string import QueryString
from fleetlight.api.http.shapes import BOOL, INTEGER, NUMBER, OBJECT, TEXT, ListOf, Shape, or_null
from fleetlight.api.query.item_query import flag
from fleetlight.api.query.scope import projects_of
from fleetlight.api.services import Services
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.headers import CELL_TIMEOUT, COMPLETE, ROUTE
from fleetlight.api.shared.proof import proof_headers, wanted_cell_timeout
from fleetlight.api.shared.times import moment_in, time_shown, with_zone
from fleetlight.cells.usage import GROUPS, Amounts, Group, Usage, UsageRequest
from fleetlight.listing.usage import CELL, CellUsage, UsageLister
from fleetlight.resources.clock import Clock
from fleetlight.resources.units import MIB_PER_GIB, MICROSECONDS_PER_HOUR
from fleetlight.views.csv_values import csv_records, csv_remark, csv_value

_FORMS = ("json", "csv")
# The default of `openstack usage list`.
_FOUR_WEEKS = 28 * 24 * MICROSECONDS_PER_HOUR
_AMOUNTS = ("instances", "instance_hours", "vcpu_hours", "memory_gib_hours", "disk_gib_hours")
_SUMS = (*_AMOUNTS, *(f"reserved_{name}" for name in _AMOUNTS))
_COVERAGE = Shape(
    {
        "cell": TEXT,
        "uuid": TEXT,
        **dict.fromkeys(("covered_from", "covered_to", "exact_from"), or_null(TEXT)),
        "exact": BOOL,
        "why": or_null(TEXT),
    }
)
USAGE = ApiOperation(
    "GET",
    "/fleetlight/usage",
    Shape(
        {
            "from": TEXT,
            "to": TEXT,
            "by": ListOf(TEXT),
            "exact": BOOL,
            "usage": ListOf(OBJECT),
            "total": Shape({name: INTEGER if name.endswith("instances") else NUMBER for name in _SUMS}),
            "cells": or_null(ListOf(_COVERAGE)),
        }
    ),
    query=("from", "to", "by", "format", "remarks"),
    takes=(CELL_TIMEOUT,),
    gives=(COMPLETE, ROUTE),
    faults=(400,),
    summary="Hours that instances ran and were reserved for in a period, deleted ones too, with their vCPU, memory and "
    "disk, by project, flavor and cell, and which cells know all of it; as CSV with format=csv",
)


def routes(services: Services) -> Sequence[HttpRoute]:
    parts = services.parts
    lister = UsageLister(parts.cells, parts.fleet.journals.announced)
    handler = UsageHandler(lister, clock=parts.clock)
    return [services.middleware.route(USAGE, handler.show)]


class UsageHandler:
    """The handler of usage. clock: microseconds since the epoch."""

    def __init__(self, lister: UsageLister, *, clock: Clock) -> None:
        self._lister = lister
        self._clock = clock

    async def show(self, request: ApiRequest) -> Response:
        """`GET /fleetlight/usage`: of all projects for administrators, of their own project for others.

        Raises BadRequestError.
        """
        caller, form = request.caller, request.query.last("format") or "json"
        if form not in _FORMS:
            raise BadRequestError(f"format: '{form}' is not one of {', '.join(_FORMS)}")
        by = _groups(request.query, is_admin=caller.is_admin)
        wanted = UsageRequest(
            *_period(request.query, self._clock()),
            projects_of(caller, all_projects=caller.is_admin),
            tuple(name for name in by if name != CELL),
        )
        found = await self._lister.usage(
            wanted,
            cell_timeout_s=wanted_cell_timeout(request.http.headers, request.writes.cell_timeout_s),
            admission=request.admission,
        )
        sums = sorted(found.sums(by).items(), key=lambda item: [(value is not None, value or "") for value in item[0]])
        covers = {
            "from": with_zone(wanted.start),
            "to": with_zone(wanted.stop),
            "by": by,
            "exact": found.proof.has_all_cells and not any(each.why for each in found.cells),
            "cells": [_coverage(wanted, each) for each in found.cells] if caller.is_admin else None,
        }
        headers = proof_headers(found.proof, caller)
        if form == "csv":
            remark = covers | {"complete": found.proof.is_complete} if flag(request.query, "remarks") else None
            name = f"usage{'' if found.proof.is_complete else '-incomplete'}.csv"
            named = {"Content-Disposition": f'attachment; filename="{name}"'}
            return Response(_csv(by, sums, remark), headers={**headers, **named}, media_type="text/csv")
        rows = [dict(zip((*by, *_SUMS), (*group, *_amounts(usage)), strict=True)) for group, usage in sums]
        total = dict(zip(_SUMS, _amounts(_total(usage for _, usage in sums)), strict=True))
        return json_answer({**covers, "usage": rows, "total": total}, headers=headers)


def _period(query: QueryString, now: int) -> tuple[int, int]:
    """Return begin and end of the period; by default the last four weeks. Raises BadRequestError."""
    begin, end = query.last("from"), query.last("to")
    stop = now if end is None else moment_in("to", end)
    # Not before the epoch, where the calendar has dates and no instance ran.
    start = max(0, stop - _FOUR_WEEKS) if begin is None else moment_in("from", begin)
    if start >= stop:
        raise BadRequestError(f"from: {with_zone(start)} is not before to, {with_zone(stop)}")
    if stop > now:
        raise BadRequestError(f"to: {with_zone(stop)} is still to come; it is {with_zone(now)}")
    return start, stop


def _groups(query: QueryString, *, is_admin: bool) -> Sequence[str]:
    """Parse the grouping, by default by project; only administrators may group by cell. Raises BadRequestError."""
    known = (*GROUPS, CELL) if is_admin else tuple(GROUPS)
    text = query.last("by")
    wanted = ["project"] if text is None else [name for name in text.split(",") if name]
    if unknown := next((name for name in wanted if name not in known), None):
        raise BadRequestError(f"by: '{unknown[:100]}' is not one of {', '.join(known)}")
    return list(dict.fromkeys(wanted))


def _coverage(wanted: UsageRequest, usage: CellUsage) -> dict[str, Any]:
    return {
        "cell": usage.answer.cell.name,
        "uuid": usage.answer.cell.uuid,
        "covered_from": with_zone(wanted.start) if usage.is_known else None,
        "covered_to": with_zone(wanted.stop) if usage.is_known else None,
        "exact_from": time_shown(usage.exact_from),
        "exact": not usage.why,
        "why": "; ".join(usage.why) or None,
    }


def _amounts(usage: Usage) -> Iterator[int | float]:
    for amounts in (usage.used, usage.reserved):
        yield amounts.instances
        yield from _hours(amounts)


def _hours(amounts: Amounts) -> Iterator[float]:
    memory_gib_us = amounts.memory_mib_us / MIB_PER_GIB
    for value in (amounts.time_us, amounts.vcpus_us, memory_gib_us, amounts.disk_gib_us):
        yield value / MICROSECONDS_PER_HOUR


def _total(usages: Iterable[Usage]) -> Usage:
    total = Usage()
    for usage in usages:
        total.add(usage)
    return total


def _csv(by: Sequence[str], sums: Sequence[tuple[Group, Usage]], covers: Mapping[str, Any] | None) -> bytes:
    """Format CSV: the names of the columns, a record for each group, and a remark on the coverage, if any."""
    rows = [[csv_value(value) for value in (*group, *_amounts(usage))] for group, usage in sums]
    return csv_records([[*by, *_SUMS], *rows, *([] if covers is None else [[csv_remark(covers)]])])

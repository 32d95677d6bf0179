"""`GET /fleetlight/findings`: all known faults of the fleet, as a list and as metrics, for administrators.

Findings of cells and of the fleet database come from fleetlight.listing.findings. This module adds queries for
instances, over cells of every kind, which use the index like every list.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, generate_latest
from starlette.responses import Response

from fleetlight.api.documented import ApiOperation
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.errors import NotFoundError, ParameterError
from fleetlight.api.http.query_string import QueryString
from fleetlight.api.http.shapes import BOOL, INTEGER, NUMBER, TEXT, ListOf, MapOf, Shape, or_null
from fleetlight.api.operating.rights import require_admin
from fleetlight.api.query.engine import QueryEngine
from fleetlight.api.query.item_query import number_in, query_of, refuse_unknown
from fleetlight.api.services import Services
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.kept import Kept
from fleetlight.api.shared.times import time_shown
from fleetlight.cells.findings import Finding, FindingKind, State, unknown, wrong
from fleetlight.listing.answer import Consistency, ReadOptions
from fleetlight.listing.findings import MAX_OF_KIND, CellFindings
from fleetlight.query.filters import Eq, Filter, In, IsNotNull, IsNull, Lt, all_of, any_of
from fleetlight.resources.fields import from_microseconds
from fleetlight.resources.power_states import CRASHED, RUNNING, SHUT_DOWN
from fleetlight.resources.query_fields.catalog import ITEM_TYPES
from fleetlight.resources.units import MICROSECONDS_PER_SECOND
from fleetlight.views.query2.projection import cells_of

TRANSITION_S = 3600
KEPT_S = 30
_PATH = "/fleetlight/findings"
_FINDING = Shape(
    {
        **dict.fromkeys(("kind", "cell", "subject", "evidence"), TEXT),
        "since": or_null(TEXT),
        "age_s": or_null(NUMBER),
        "remedy": TEXT,
    }
)
LIST_FINDINGS = ApiOperation(
    "GET",
    _PATH,
    Shape(
        {
            "findings": ListOf(_FINDING),
            "counts": MapOf(INTEGER),
            "complete": BOOL,
            "missing": ListOf(Shape({"source": TEXT, "cell": or_null(TEXT), "reason": TEXT})),
        }
    ),
    query=("kind", "cell", "transition_s"),
    faults=(400, 403, 404),
    summary="What is not as it should be, with evidence, age, and the remedy; for administrators",
)
FINDING_METRICS = ApiOperation(
    "GET",
    "/fleetlight/metrics/findings",
    TEXT,
    media_type="text/plain",
    faults=(403,),
    summary="How many findings there are, by kind, as metrics of Prometheus; for administrators",
)
_IDLE = all_of(Eq("forthcoming", False), IsNull("task_state"))
_FIELDS = ("uuid", "cell", "vm_state", "task_state", "power_state", "updated_at", "created_at")


@dataclass(frozen=True, slots=True)
class _InstanceQuery:
    """A check by a filter. evidence: format with the instance's fields; remedy: format with its uuid."""

    kind: FindingKind
    wanted: Filter
    evidence: str
    remedy: str
    has_since: bool = False

    def finding(self, values: Mapping[str, Any]) -> Finding:
        since = (values["updated_at"] or values["created_at"]) if self.has_since else None
        return wrong(
            values["uuid"],
            self.evidence.format(**values),
            self.remedy.format(values["uuid"]),
            kind=self.kind,
            cell=values["cell"],
            since=None if since is None else round(since * MICROSECONDS_PER_SECOND),
        )


def _queries(cutoff: int) -> Sequence[_InstanceQuery]:
    """Make the checks. cutoff: microseconds; an instance in transition since before it counts as stuck."""
    before = from_microseconds(cutoff)
    is_old = any_of(Lt("updated_at", before), all_of(IsNull("updated_at"), Lt("created_at", before)))
    is_moving = any_of(IsNotNull("task_state"), Eq("vm_state", "building"))
    is_off = In("power_state", (SHUT_DOWN, CRASHED))
    return [
        _InstanceQuery(
            FindingKind.LONG_TRANSITION,
            all_of(Eq("forthcoming", False), is_moving, is_old),
            "it is '{vm_state}', and '{task_state}' goes on",
            "`openstack server set --state active {}`, once nothing is being done to it",
            has_since=True,
        ),
        _InstanceQuery(
            FindingKind.NOT_RUNNING,
            all_of(Eq("vm_state", "active"), is_off, _IDLE),
            "it is '{vm_state}', and its host reported power state {power_state}",
            "`openstack server reboot --hard {}`",
        ),
        _InstanceQuery(
            FindingKind.RUNNING_THOUGH_OFF,
            all_of(Eq("vm_state", "stopped"), Eq("power_state", RUNNING), _IDLE),
            "it is '{vm_state}', and its host reported power state {power_state}",
            "`openstack server start {}`; stop it then, if it is to be off",
        ),
    ]


class FindingGauges:
    """Gauges of the number of findings by kind."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._findings = Gauge(
            "fleetlight_findings",
            "What is not as it should be, by kind; at most 200 of a kind and a cell are counted",
            ["kind"],
            registry=self.registry,
        )
        self._complete = Gauge(
            "fleetlight_findings_complete",
            "1: all that compares was asked, and answered in full, else 0: there may be more findings",
            registry=self.registry,
        )

    def show(self, findings: Sequence[Finding]) -> None:
        for kind, count in _counts(findings).items():
            self._findings.labels(kind).set(count)
        self._complete.set(not _missing(findings))


class FindingsHandler:
    """Handlers of findings."""

    def __init__(self, services: Services, query_engine: QueryEngine) -> None:
        parts = services.parts
        self._query_engine = query_engine
        self._reader = parts.cells
        self._timeout_s = parts.search.cell_timeout_s
        self._cells = CellFindings(parts.cells, parts.fleet, self._timeout_s)
        self._clock = parts.clock
        self._texts = Kept[bytes](parts.clock, KEPT_S)

    async def list_all(self, request: ApiRequest) -> Response:
        """`GET /fleetlight/findings`"""
        require_admin(request, "fleetlight:findings")
        refuse_unknown(request.query, LIST_FINDINGS.query)
        kinds = _kinds_in(request.query)
        transition_s = number_in("transition_s", request.query) or TRANSITION_S
        now = self._clock()
        findings = await self._look(request, now, transition_s, await self._chosen(request.query.last("cell")))
        shown, missing = _ordered(findings, kinds), _missing(findings)
        return json_answer(
            {
                "findings": [_shown(each, now) for each in shown],
                "counts": {kind: count for kind, count in _counts(shown).items() if kind in kinds},
                "complete": not missing,
                "missing": [{"source": each.about, "cell": each.cell, "reason": each.evidence} for each in missing],
            }
        )

    async def metrics(self, request: ApiRequest) -> Response:
        """`GET /fleetlight/metrics/findings`: one search serves all scrapes within KEPT_S."""
        require_admin(request, "fleetlight:metrics:findings")
        return Response(await self._texts.get(None, partial(self._text, request)), media_type=CONTENT_TYPE_LATEST)

    async def _text(self, request: ApiRequest) -> bytes:
        gauges = FindingGauges()
        gauges.show(await self._look(request, self._clock(), TRANSITION_S, None))
        return generate_latest(gauges.registry)

    async def _look(self, request: ApiRequest, now: int, transition_s: int, only: set[str] | None) -> Sequence[Finding]:
        """Collect findings. Of two about one instance, keep that of the cell, which knows since when."""
        queries = _queries(now - transition_s * MICROSECONDS_PER_SECOND)
        async with request.admission.page():
            of_cells, *queried = await asyncio.gather(
                self._cells.look(now, only), *(self._ask(request, query, only) for query in queries)
            )
        known = {(each.kind, each.about) for each in of_cells}
        return [*of_cells, *(one for each in queried for one in each if (one.kind, one.about) not in known)]

    async def _ask(self, request: ApiRequest, query: _InstanceQuery, only: set[str] | None) -> Sequence[Finding]:
        fresh = ReadOptions(Consistency.BOUNDED, (), self._timeout_s, request.admission)
        question = query_of(ITEM_TYPES["instance"], _FIELDS, query.wanted, limit=MAX_OF_KIND, all_projects=True)
        result = await self._query_engine.answer(question, request.caller, fresh, only)
        rows = (cells_of(cells) for _, cells in result.rows)
        found = [query.finding(dict(zip(_FIELDS, (value for _, value in cells), strict=True))) for cells in rows]
        source = f"instances for '{query.kind}'"
        missing = [
            unknown(source, each.failure or "the index lacks some of it", cell=each.cell.name)
            for each in result.proof.cells
            if not each.is_complete
        ]
        if result.after is not None:
            missing.append(unknown(source, "there are more"))
        return [*found, *missing]

    async def _chosen(self, name: str | None) -> set[str] | None:
        if name is None:
            return None
        found = {cell.uuid for cell in await self._reader.cells() if name in (cell.name, cell.uuid)}
        if not found:
            raise NotFoundError(f"Cell {name} could not be found.")
        return found


def _kinds_in(query: QueryString) -> Sequence[FindingKind]:
    text = query.last("kind")
    if text is None:
        return list(FindingKind)
    if text not in set(FindingKind):
        raise ParameterError("kind", text, f"Must be one of {', '.join(FindingKind)}.")
    return [FindingKind(text)]


def _counts(found: Sequence[Finding]) -> Mapping[FindingKind, int]:
    counts = Counter(each.kind for each in found)
    return {kind: counts[kind] for kind in FindingKind}


def _missing(found: Sequence[Finding]) -> Sequence[Finding]:
    """Make findings for sources that may have more."""
    return [each for each in found if each.state is State.UNKNOWN]


def _ordered(found: Sequence[Finding], kinds: Sequence[FindingKind]) -> Sequence[Finding]:
    by_place = sorted(found, key=lambda each: (each.cell or "", each.about))
    return [each for kind in kinds for each in by_place if each.kind is kind]


def _shown(finding: Finding, now: int) -> Mapping[str, Any]:
    since = finding.since
    return {
        "kind": finding.kind,
        "cell": finding.cell,
        "subject": finding.about,
        "evidence": finding.evidence,
        "since": time_shown(since),
        "age_s": None if since is None else max(0, now - since) / MICROSECONDS_PER_SECOND,
        "remedy": finding.remedy,
    }

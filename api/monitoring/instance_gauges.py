"""`GET /fleetlight/metrics/instances`: numbers of servers by cell, as Prometheus gauges, for administrators.

They are not part of `/metrics`, since they query the index, which may fail or take long, and not every fleet needs
them. One count serves all scrapes within KEPT_S.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, generate_latest
from starlette.responses import Response

from fleetlight.api.documented import ApiOperation
from fleetlight.api.http.errors import ForbiddenError, ParameterError
from fleetlight.api.http.query_string import QueryString
from fleetlight.api.http.shapes import TEXT
from fleetlight.api.query.item_query import refuse_unknown
from fleetlight.api.query.scope import scope_of
from fleetlight.api.services import Services
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.kept import Kept
from fleetlight.listing.answer import Consistency, ReadOptions
from fleetlight.listing.count_instances import CountResult
from fleetlight.query.counts import CountRequest
from fleetlight.query.filters import Eq
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.resources.server_status import status_of

KEPT_S = 15
MAX_PROJECTS = 100
OTHER = "other"
"""The `project` of all servers whose projects have no series of their own."""
MAX_GROUPS = 50_000
"""The limit over all cells; Elasticsearch refuses more than 65,536."""
METRICS = ApiOperation(
    "GET",
    "/fleetlight/metrics/instances",
    TEXT,
    query=("projects",),
    media_type="text/plain",
    faults=(400, 403),
    summary="How many servers each cell has, by status and zone, as metrics of Prometheus; for administrators",
)


class InstanceGauges:
    """The gauges of one count."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._instances = Gauge(
            "fleetlight_instances",
            "Servers by cell, by the status that the compute API shows, and by zone; none is no series",
            ["cell", "status", "zone"],
            registry=self.registry,
        )
        self._complete = Gauge(
            "fleetlight_instances_complete",
            "1: every server of the cell was counted, else 0: what is missing may still be there",
            ["cell"],
            registry=self.registry,
        )
        self._age = Gauge(
            "fleetlight_instances_age_seconds",
            "Age of what the index has of a cell that it was counted from; 0 where the cell itself was asked",
            ["cell"],
            registry=self.registry,
        )
        self._of_projects = Gauge(
            "fleetlight_project_instances",
            "Servers of the projects that have most of them, and of all others together; as many as `projects` says",
            ["project"],
            registry=self.registry,
        )

    def show(self, counted: CountResult) -> None:
        """Show servers by cell, vm_state, task_state and zone."""
        is_whole = counted.has_all_cells and not counted.total.is_partial
        for answer in counted.cells:
            self._complete.labels(answer.cell.uuid).set(is_whole and answer.is_complete)
            self._age.labels(answer.cell.uuid).set(answer.age_s or 0)
        for cell_uuid, counts in counted.by_cell.items():
            for (vm_state, task_state, zone), count in counts.groups.items():
                status = status_of(vm_state, task_state, deleted=False)
                self._instances.labels(cell_uuid, status, zone or "").inc(count)

    def show_projects(self, counted: CountResult, most: int) -> None:
        """Show servers by project, for the `most` largest."""
        counts = Counter({project or "": count for (project,), count in counted.total.groups.items()})
        largest = dict(counts.most_common(most))
        for project, count in largest.items():
            self._of_projects.labels(project).inc(count)
        self._of_projects.labels(OTHER).inc(counts.total() - sum(largest.values()))


class InstanceGaugesHandler:
    """Shares one count between all scrapes within KEPT_S."""

    def __init__(self, services: Services) -> None:
        self._counter = services.counter
        self._texts = Kept[bytes](services.parts.clock, KEPT_S)

    async def show(self, request: ApiRequest) -> Response:
        """`GET /fleetlight/metrics/instances`. Raises ForbiddenError."""
        if not request.caller.is_admin:
            raise ForbiddenError("fleetlight:metrics:instances")
        refuse_unknown(request.query, METRICS.query)
        projects = _projects_in(request.query)
        text = await self._texts.get(projects, partial(self._text, request, projects))
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    async def _text(self, request: ApiRequest, projects: int) -> bytes:
        gauges = InstanceGauges()
        gauges.show(await self._count(request, ("vm_state", "task_state", "availability_zone")))
        if projects:
            gauges.show_projects(await self._count(request, ("project_id",)), projects)
        return generate_latest(gauges.registry)

    async def _count(self, request: ApiRequest, by: Sequence[str]) -> CountResult:
        """Count by the index, however old; asks only cells that the index does not follow."""
        wanted = scope_of(request.caller, Eq("forthcoming", False), all_projects=True)
        fresh = ReadOptions(Consistency.ANY, (), request.writes.cell_timeout_s, request.admission)
        return await self._counter.count(CountRequest(wanted, INSTANCE_FIELDS, tuple(by), MAX_GROUPS), fresh)


def _projects_in(query: QueryString) -> int:
    text = query.last("projects")
    if text is None:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MAX_PROJECTS)) and int(text) <= MAX_PROJECTS):
        raise ParameterError("projects", text, f"Must be a number from 0 to {MAX_PROJECTS}.")
    return int(text)

"""Metrics of the faces, in a registry per app, so that one process can have several apps."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from fleetlight.api.limits.admission import SECONDS, ListQueueMetrics
from fleetlight.cells.model import Cell
from fleetlight.listing.answer import Page

OTHERS = "others"
_YES_NO = {True: "yes", False: "no"}
_REFUSED = {"429", "503"}


class ProjectMetrics:
    """Numbers of requests and of refusals by limits, by project, in one process.

    most: number of projects with counts of their own, the first to come; all others count together.
    """

    def __init__(self, registry: CollectorRegistry, most: int) -> None:
        self._most = most
        self._known: set[str] = set()
        self._requests = Counter(
            "fleetlight_api_project_requests",
            "Requests by project, and whether they were `refused` with 429 or 503; with `api.max_project_metrics`",
            ["project", "refused"],
            registry=registry,
        )

    def count(self, project: str, status: str) -> None:
        """Count a request of a project, "" for none, by the status of its answer."""
        if not self._most:
            return
        if project not in self._known:
            if len(self._known) < self._most:
                self._known.add(project)
            else:
                project = OTHERS
        self._requests.labels(project, "yes" if status in _REFUSED else "no").inc()


@dataclass(frozen=True, slots=True)
class Counted:
    """Counts since the process began.

    seconds: number of requests up to each bound. by_index, by_cells, incomplete: numbers of lists; lists merged from
    the index and cells count as by cells.
    """

    requests: float
    seconds: Mapping[float, float]
    by_index: float
    by_cells: float
    incomplete: float

    def since(self, before: "Counted") -> "Counted":
        """Return the difference to earlier counts."""
        return Counted(
            self.requests - before.requests,
            {bound: count - before.seconds.get(bound, 0.0) for bound, count in self.seconds.items()},
            self.by_index - before.by_index,
            self.by_cells - before.by_cells,
            self.incomplete - before.incomplete,
        )


class ApiMetrics:
    """The metrics of one app, and of `others`, the parts in the same process."""

    def __init__(self, others: Sequence[CollectorRegistry] = (), max_projects: int = 0) -> None:
        self._registry = CollectorRegistry()
        self._others = others
        gauge = partial(Gauge, registry=self._registry)
        counter = partial(Counter, registry=self._registry)
        histogram = partial(Histogram, registry=self._registry)
        self._list_duration = histogram(
            "fleetlight_list_duration_seconds",
            "Time from an accepted list request to its page, by where the rows came from",
            ["route"],
            buckets=SECONDS,
        )
        self._lists = counter(
            "fleetlight_lists",
            "Lists by where the rows came from, and whether every cell fully contributed",
            ["route", "complete"],
        )
        self._requests = counter(
            "fleetlight_api_requests",
            "Requests by their route, an address as it is registered, and the status of the answer; `none`: no answer",
            ["method", "route", "status"],
        )
        self._request_seconds = histogram(
            "fleetlight_api_request_seconds",
            "Time from a request to the beginning of its answer, by its route",
            ["method", "route"],
            buckets=SECONDS,
        )
        self._discoveries = counter(
            "fleetlight_discoveries",
            "Discoveries of targets by their answer: `complete`, `last`, the last complete one, or `refused` with 503",
            ["answer"],
        )
        self._fleet_reachable = gauge(
            "fleetlight_api_fleet_reachable", "1: the fleet database answered when this was measured, else 0"
        )
        self._index_avoided = gauge(
            "fleetlight_safe_connect_tripped", "1 while the index failed and is not asked any more, else 0"
        )
        self._watermark = gauge(
            "fleetlight_api_index_watermark", "Sequence up to which the index has every change of a cell", ["cell"]
        )
        self._cell_info = gauge(
            "fleetlight_cell_info",
            "1 for each cell: its uuid, by which metrics call it, and its name",
            ["cell", "name"],
        )
        self._cell_hangs = gauge(
            "fleetlight_cell_hangs",
            "1 while a cell hangs and is not asked before a probe was answered, else 0",
            ["cell"],
        )
        self._cell_disabled = gauge(
            "fleetlight_cell_disabled",
            "1 for each cell that is disabled, and that no indexer follows therefore, else 0",
            ["cell"],
        )
        self._age = gauge("fleetlight_api_index_age_seconds", "Age of what the index has of a cell", ["cell"])
        self.list_queues = ListQueueMetrics(self._registry)
        self._projects = ProjectMetrics(self._registry, max_projects)

        for route in ("index", "cells", "mixed"):
            self._list_duration.labels(route)
            for complete in _YES_NO.values():
                self._lists.labels(route, complete)
        for answer in ("complete", "last", "refused"):
            self._discoveries.labels(answer)

    def count_list(self, page: Page, duration_s: float) -> None:
        self._list_duration.labels(page.summary).observe(duration_s)
        self._lists.labels(page.summary, _YES_NO[page.is_complete]).inc()

    def count_discovery(self, answer: Literal["complete", "last", "refused"]) -> None:
        self._discoveries.labels(answer).inc()

    def count_request(self, method: str, route: str, status: str, project: str | None, duration_s: float) -> None:
        """Count a request, with the values of fleetlight.api.http.request_metrics.Observe."""
        if project is not None:
            self._projects.count(project, status)
        self._requests.labels(method, route, status).inc()
        self._request_seconds.labels(method, route).observe(duration_s)

    def counted(self) -> Counted:
        """Return the counts of requests and lists until now."""
        requests = [each for metric in self._requests.collect() for each in metric.samples if _is_total(each.name)]
        lists = [each for metric in self._lists.collect() for each in metric.samples if _is_total(each.name)]
        seconds: dict[float, float] = {}
        for metric in self._request_seconds.collect():
            for each in metric.samples:
                if each.name.endswith("_bucket"):
                    bound = float(each.labels["le"])
                    seconds[bound] = seconds.get(bound, 0.0) + each.value
        return Counted(
            sum(each.value for each in requests),
            seconds,
            sum(each.value for each in lists if each.labels["route"] == "index"),
            sum(each.value for each in lists if each.labels["route"] != "index"),
            sum(each.value for each in lists if each.labels["complete"] == _YES_NO[False]),
        )

    def show_safe_connect(self, *, is_tripped: bool) -> None:
        self._index_avoided.set(is_tripped)

    def show_fleet(self, *, is_reachable: bool) -> None:
        self._fleet_reachable.set(is_reachable)

    def show_cells(self, cells: Sequence[Cell], hanging: Collection[str]) -> None:
        """Show all cells, and the uuids of hanging ones; drops cells that have left."""
        for gauge in (self._cell_info, self._cell_hangs, self._cell_disabled):
            gauge.clear()
        for cell in cells:
            self._cell_info.labels(cell.uuid, cell.name).set(1)
            self._cell_hangs.labels(cell.uuid).set(cell.uuid in hanging)
            self._cell_disabled.labels(cell.uuid).set(cell.disabled)

    def show_progress(self, watermarks: Mapping[str, int], ages_s: Mapping[str, float]) -> None:
        """Show watermark and age of the index by cell uuid; drops cells that are not among them any more."""
        for gauge, values in ((self._watermark, watermarks), (self._age, ages_s)):
            gauge.clear()
            for uuid, value in values.items():
                gauge.labels(uuid).set(value)

    @property
    def registries(self) -> Sequence[CollectorRegistry]:
        """Return all registries, whose metrics have different names."""
        return self._registry, *self._others


def _is_total(name: str) -> bool:
    """Whether a sample of a counter is its value, and not the time of its creation."""
    return name.endswith("_total")

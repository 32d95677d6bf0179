"""What is counted and timed of the faces; a registry of their own, so that several apps can live in one process."""

from collections.abc import Collection, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from listing.answer import Page

_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class ApiMetrics:
    """The metrics of one app, and those of `others` that run in its process."""

    def __init__(self, others: Sequence[CollectorRegistry] = ()) -> None:
        self._registry = CollectorRegistry()
        self._others = others
        self._list_duration = Histogram(
            "fleetlight_list_duration_seconds",
            "Time from an accepted list request to its page, by where the rows came from.",
            ["route"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._incomplete_lists = Counter(
            "fleetlight_incomplete_lists",
            "Lists that some cell did not fully contribute to.",
            registry=self._registry,
        )
        self._index_avoided = Gauge(
            "fleetlight_safe_connect_tripped",
            "1 while the index failed and is not asked any more, else 0.",
            registry=self._registry,
        )
        self._watermark = Gauge(
            "fleetlight_api_index_watermark",
            "Sequence up to which the index has every change of a cell.",
            ["cell"],
            registry=self._registry,
        )
        self._cell_info = Gauge(
            "fleetlight_cell_info",
            "1 for each cell: its uuid, by which metrics call it, and its name.",
            ["cell", "name"],
            registry=self._registry,
        )
        self._cell_hangs = Gauge(
            "fleetlight_cell_hangs",
            "1 while a cell hangs and is not asked before a probe was answered, else 0.",
            ["cell"],
            registry=self._registry,
        )
        self._age = Gauge(
            "fleetlight_api_index_age_seconds",
            "Age of what the index has of a cell.",
            ["cell"],
            registry=self._registry,
        )

    def count_list(self, page: Page, duration_s: float) -> None:
        self._list_duration.labels(page.summary).observe(duration_s)
        if not page.is_complete:
            self._incomplete_lists.inc()

    def show_safe_connect(self, *, is_tripped: bool) -> None:
        self._index_avoided.set(is_tripped)

    def show_cells(self, names: Mapping[str, str], hanging: Collection[str]) -> None:
        """The name of each cell by its uuid, and which of them hang; cells that are not named any more disappear."""
        self._cell_info.clear()
        self._cell_hangs.clear()
        for uuid, name in names.items():
            self._cell_info.labels(uuid, name).set(1)
            self._cell_hangs.labels(uuid).set(uuid in hanging)

    def show_progress(self, watermarks: Mapping[str, int], ages_s: Mapping[str, float]) -> None:
        """Watermark and age of the index by uuid of the cell; cells that are not among them any more disappear."""
        for gauge, values in ((self._watermark, watermarks), (self._age, ages_s)):
            gauge.clear()
            for uuid, value in values.items():
                gauge.labels(uuid).set(value)

    @property
    def registries(self) -> Sequence[CollectorRegistry]:
        """Everything that is measured, each with names of its own."""
        return self._registry, *self._others

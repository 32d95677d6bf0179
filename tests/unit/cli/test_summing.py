"""The metrics of several processes as those of one, against what one registry would have counted."""

from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from fleetlight.api.metrics import ApiMetrics
from fleetlight.cli.monitoring import add_process_metrics
from fleetlight.cli.processes.sibling_processes import Measured, SiblingProcess, States, families_of
from fleetlight.cli.processes.summing import SMALLEST_GAUGES, SUMMED_GAUGES, SummedMetrics


class Played(SiblingProcess):
    """A process of which `registry` is what it has counted, and `process` its id; None: it does not answer."""

    def __init__(self, name: str) -> None:
        super().__init__(name, Path("/nowhere"), 0, States(1))
        self.registry = CollectorRegistry()
        self.process: int | None = 1

    def measured(self) -> Measured | None:
        return None if self.process is None else Measured(self.process, families_of(self.registry))


@pytest.fixture
def processes() -> list[Played]:
    return [Played("api-1"), Played("api-2")]


@pytest.fixture
def value(processes: list[Played]) -> Callable[..., float | None]:
    summed = CollectorRegistry()
    summed.register(SummedMetrics(processes))

    def value_of(name: str, **labels: str) -> float | None:
        return summed.get_sample_value(name, labels)

    return value_of


def test_what_is_counted_is_summed(processes: list[Played], value: Callable[..., float | None]) -> None:
    one_registry = CollectorRegistry()
    for number, process in enumerate(processes, 1):
        for registry in (process.registry, one_registry):
            name = f"lists_{number}" if registry is one_registry else "lists"
            counter = Counter(name, "Lists", ["route"], registry=registry)
            counter.labels("index").inc(3 * number)
    histograms = [Histogram("took", "Time", buckets=(1, 2), registry=each.registry) for each in processes]
    expected = Histogram("took", "Time", buckets=(1, 2), registry=one_registry)
    for histogram, seconds in zip((*histograms, histograms[0]), (0.5, 1.5, 7), strict=True):
        histogram.observe(seconds)
        expected.observe(seconds)
    assert value("lists_total", route="index") == 9
    for name, labels in (("took_bucket", {"le": "1.0"}), ("took_bucket", {"le": "2.0"}), ("took_sum", {})):
        assert value(name, **labels) == one_registry.get_sample_value(name, labels)
    assert value("took_count") == 3


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fleetlight_api_index_age_seconds", 5),
        ("fleetlight_safe_connect_tripped", 5),
        ("fleetlight_api_index_watermark", 2),
        ("process_resident_memory_bytes", 7),
        ("process_open_fds", 5),
        ("process_max_fds", 5),
        ("process_start_time_seconds", 2),
    ],
)
def test_gauges_speak_for_all_by_their_rule(
    processes: list[Played], value: Callable[..., float | None], name: str, expected: float
) -> None:
    for process, set_to in zip(processes, (2, 5), strict=True):
        Gauge(name, "A gauge", registry=process.registry).set(set_to)
    assert value(name) == expected


def test_counters_never_fall_when_a_process_is_killed_and_gauges_of_it_go(
    processes: list[Played], value: Callable[..., float | None]
) -> None:
    for process in processes:
        Counter("lists", "Lists", registry=process.registry).inc(10)
        Gauge("process_resident_memory_bytes", "Memory", registry=process.registry).set(4)
    assert (value("lists_total"), value("process_resident_memory_bytes")) == (20, 8)
    killed = processes[0]
    killed.process = None
    assert (value("lists_total"), value("process_resident_memory_bytes")) == (20, 4)
    killed.process, killed.registry = 2, CollectorRegistry()
    Counter("lists", "Lists", registry=killed.registry).inc(1)
    assert value("lists_total") == 21
    killed.process, killed.registry = 3, CollectorRegistry()
    assert value("lists_total") == 21


# Whose largest value is that of all: what is worse the more there is of it, and what is the same for all.
LARGEST_GAUGES = {
    # Each has a limit of its own, so the one that has most files open runs out of them first.
    "process_open_fds",
    "process_max_fds",
    "fleetlight_safe_connect_tripped",
    "fleetlight_cell_info",
    "fleetlight_cell_hangs",
    "fleetlight_cell_disabled",
    "fleetlight_api_index_age_seconds",
}


def test_each_gauge_that_several_processes_have_has_its_rule_on_purpose() -> None:
    of_process = CollectorRegistry()
    add_process_metrics(of_process)
    gauges = {
        metric.name
        for registry in (of_process, *ApiMetrics().registries)
        for metric in registry.collect()
        if metric.type == "gauge"
    }
    assert gauges == SUMMED_GAUGES | SMALLEST_GAUGES | LARGEST_GAUGES

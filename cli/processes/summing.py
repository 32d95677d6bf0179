"""Combines the metrics of several processes.

Counters and histograms are summed. For a gauge the largest value is taken, unless the gauge is named here.
"""

from collections.abc import Callable, Iterator, Sequence
from threading import Lock

from prometheus_client import Metric
from prometheus_client.registry import Collector

from fleetlight.cli.processes.sibling_processes import Family, Measured, Sample, SiblingProcess, all_of

SUMMED_GAUGES = frozenset(
    {
        "process_resident_memory_bytes",
        "process_virtual_memory_bytes",
        "fleetlight_lists_waiting",
        "fleetlight_lists_in_the_making",
    }
)
"""Gauges of amounts that each process has or uses."""
SMALLEST_GAUGES = frozenset(
    {"process_start_time_seconds", "fleetlight_api_index_watermark", "fleetlight_api_fleet_reachable"}
)
"""Gauges of a start, a limit or a state that all processes have to share."""
_CREATED = "_created"
_Key = tuple[str, tuple[tuple[str, str], ...]]
_Values = dict[_Key, float]


class SummedMetrics(Collector):
    """The combined metrics of `processes`; counts of a dead process, as last read, stay in the sums."""

    def __init__(self, processes: Sequence[SiblingProcess]) -> None:
        self._processes = processes
        self._last: dict[str, Measured] = {}
        # The counts of processes that have died.
        self._before: _Values = {}
        self._guard = Lock()

    def collect(self) -> Iterator[Metric]:
        with self._guard:
            yield from self._summed()

    def _summed(self) -> Sequence[Metric]:
        answers = all_of(self._processes, lambda process: process.measured())
        for name, measured in answers.items():
            if measured is not None:
                self._remember(name, measured)
        families: dict[str, Family] = {}
        values: dict[str, _Values] = {}
        for name, known in self._last.items():
            for family in known.families:
                families[family.name] = family
                # An old gauge of a process that does not answer tells nothing about now.
                if answers[name] is not None or _is_counted(family):
                    _add(values.setdefault(family.name, {}), family, family.samples)
        return [_as_metric(family, values.get(name, {}), self._before) for name, family in families.items()]

    def _remember(self, name: str, measured: Measured) -> None:
        last = self._last.get(name)
        if last is not None and last.process != measured.process:
            for family in filter(_is_counted, last.families):
                _add(self._before, family, family.samples)
        self._last[name] = measured


def _is_counted(family: Family) -> bool:
    return family.type in {"counter", "histogram"}


def _add(values: _Values, family: Family, samples: Sequence[Sample]) -> None:
    for sample in samples:
        key = sample.name, tuple(sorted(sample.labels.items()))
        joined = _joined(family, sample.name)
        values[key] = joined(values[key], sample.value) if key in values else sample.value


def _joined(family: Family, name: str) -> Callable[[float, float], float]:
    if name.endswith(_CREATED):
        return min
    if _is_counted(family) or name in SUMMED_GAUGES:
        return lambda one, other: one + other
    return min if name in SMALLEST_GAUGES else max


def _as_metric(family: Family, values: _Values, before: _Values) -> Metric:
    metric = Metric(family.name, family.documentation, family.type)
    for key, value in values.items():
        name, labels = key
        total = _joined(family, name)(value, before[key]) if _is_counted(family) and key in before else value
        metric.add_sample(name, dict(labels), total)
    return metric

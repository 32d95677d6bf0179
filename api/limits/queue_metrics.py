"""What is measured of the queues in which pages wait (fleetlight.api.limits.admission)."""

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from fleetlight.api.limits.fair_queue import QueueRefusal

SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""The buckets of what takes a part of a second, or a few."""


class ListQueueMetrics:
    """Of all queues, in `registry`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._list_wait = Histogram(
            "fleetlight_list_wait_seconds",
            "Time for which a page waited for a place, by queue: `lists`, or `live` where cells are asked",
            ["queue"],
            buckets=SECONDS,
            registry=registry,
        )
        self._waiting_lists = Gauge(
            "fleetlight_lists_waiting",
            "Pages that wait for a place, by queue: `lists`, or `live` where cells are asked",
            ["queue"],
            registry=registry,
        )
        self._lists_in_the_making = Gauge(
            "fleetlight_lists_in_the_making",
            "Pages that are made now, by queue: `lists`, or `live` where cells are asked",
            ["queue"],
            registry=registry,
        )
        self._refused_lists = Counter(
            "fleetlight_lists_refused",
            "Pages refused with 503: `full`, as many wait as may; `own`, as many of the caller; `late`, waited long",
            ["queue", "reason"],
            registry=registry,
        )

    def of_queue(self, queue: str) -> "QueueMetrics":
        return QueueMetrics(
            self._waiting_lists.labels(queue),
            self._lists_in_the_making.labels(queue),
            self._list_wait.labels(queue),
            {reason: self._refused_lists.labels(queue, reason) for reason in QueueRefusal},
        )


class QueueMetrics:
    """Of one queue: how many wait and are served, how long they waited, and how many were refused."""

    def __init__(self, waiting: Gauge, served: Gauge, wait: Histogram, refused: Mapping[QueueRefusal, Counter]) -> None:
        self._waiting = waiting
        self._served = served
        self.wait = wait
        self._refused = refused

    def show(self, waiting: Callable[[], int], served: Callable[[], int]) -> None:
        """Ask these when the metrics are read."""
        self._waiting.set_function(waiting)
        self._served.set_function(served)

    def count_refusal(self, why: QueueRefusal) -> None:
        self._refused[why].inc()

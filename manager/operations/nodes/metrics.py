"""Metrics of the node state cache (contracts/ganeti-node-state-cache, 10), for tests and for Prometheus."""

from collections import Counter
from threading import Lock

from prometheus_client import CollectorRegistry
from prometheus_client import Counter as Metric


class CacheCounts:
    """Counters of one process. registry: exports them to Prometheus; None: no export."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._guard = Lock()
        self._counts: Counter[str] = Counter()
        self._calls: Counter[str] = Counter()
        self._metric = Metric(
            "fleetlight_node_cache_events", "Outcomes of reads and writes of the node state cache", ["event"],
            registry=registry,
        )  # fmt: skip
        self._call_metric = Metric("fleetlight_node_calls", "Calls of agents", ["node", "outcome"], registry=registry)

    def of(self, event: str) -> int:
        """Return the number of `hits`, `misses`, `expired`, `invalidations`, `flushes`, `bypasses`, `stores`,
        `discarded_stores` or `unreachable`."""
        return self._counts[event]

    def calls_of(self, node: str) -> int:
        """Return how often this process has called the agent of a node."""
        return self._calls[node]

    def hit(self, count: int) -> None:
        self._count("hits", count)

    def missed(self, count: int, *, expired: int) -> None:
        """Count misses. expired: how many of them had an entry that was too old."""
        self._count("misses", count)
        self._count("expired", expired)

    def stored(self, *, is_kept: bool) -> None:
        self._count("stores" if is_kept else "discarded_stores")

    def invalidated(self, *, is_of_all: bool) -> None:
        self._count("flushes" if is_of_all else "invalidations")

    def bypassed(self) -> None:
        self._count("bypasses")

    def unreachable(self) -> None:
        self._count("unreachable")

    def called(self, node: str, *, has_failed: bool) -> None:
        with self._guard:
            self._calls[node] += 1
        self._call_metric.labels(node, "failure" if has_failed else "success").inc()

    def _count(self, event: str, count: int = 1) -> None:
        if count:
            with self._guard:
                self._counts[event] += count
            self._metric.labels(event).inc(count)

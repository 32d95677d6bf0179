"""Metrics of the relays of a process, for Prometheus."""

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from fleetlight.resources.clock import Clock, system_clock
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)


class RelayMetrics:
    """The metrics of relays in a `registry`; one object per registry. Cells are named by uuid."""

    def __init__(self, registry: CollectorRegistry, clock: Clock = system_clock) -> None:
        self._clock = clock
        self._waiting_since: dict[str, int] = {}
        gauge = partial(Gauge, registry=registry)
        counter = partial(Counter, registry=registry)
        histogram = partial(Histogram, registry=registry)
        self._is_active = gauge(
            "fleetlight_relay_active", "1: this relay publishes the changes of the cell; 0: it stands by", ["cell"]
        )
        self._sequence = gauge("fleetlight_relay_sequence", "The highest sequence given to a change", ["cell"])
        self._lag = gauge(
            "fleetlight_relay_lag_seconds",
            "How long the oldest change has waited that the bus has not confirmed; 0 when none waits",
            ["cell"],
        )
        self.look_seconds = histogram(
            "fleetlight_relay_look_seconds",
            "Time of a look for changes that found none: how fast the database of the cell answers",
            ["cell"],
            buckets=_SECONDS,
        )
        self.published = counter(
            "fleetlight_relay_published_changes",
            "Changes that the bus has confirmed; more than once if it was not heard",
            ["cell"],
        )
        self.failures = counter("fleetlight_relay_failures", "Failures that were waited out, by kind", ["cell", "kind"])
        self.left_out = counter(
            "fleetlight_relay_left_out_changes",
            "Changes that are too large for the bus; indexers read them from the cell",
            ["cell"],
        )

    def cell_known(self, cell_uuid: str) -> None:
        """Add a cell that a relay of this process works on; its counters begin with 0."""
        self.active(cell_uuid, is_active=False)
        self.published.labels(cell_uuid)
        self.left_out.labels(cell_uuid)
        self.look_seconds.labels(cell_uuid)

    def active(self, cell_uuid: str, *, is_active: bool) -> None:
        self._is_active.labels(cell_uuid).set(is_active)
        self._lag.labels(cell_uuid).set_function(lambda: self._lag_s(cell_uuid))
        if not is_active:
            self.nothing_waits(cell_uuid)

    def numbered(self, cell_uuid: str, last_sequence: int) -> None:
        self._sequence.labels(cell_uuid).set(last_sequence)

    def waits_since(self, cell_uuid: str, committed_at: int) -> None:
        """Set when the oldest unpublished change was committed, in microseconds since the epoch."""
        self._waiting_since[cell_uuid] = committed_at

    def nothing_waits(self, cell_uuid: str) -> None:
        self._waiting_since.pop(cell_uuid, None)

    def _lag_s(self, cell_uuid: str) -> float:
        since = self._waiting_since.get(cell_uuid)
        return 0.0 if since is None else max(0, self._clock() - since) / MICROSECONDS_PER_SECOND

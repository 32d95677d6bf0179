"""Metrics of the clock of a process, for Prometheus."""

from prometheus_client import CollectorRegistry, Gauge

from fleetlight.cells.fleet.fleet_clock import FleetClock


def measure_clock(registry: CollectorRegistry, clock: FleetClock) -> None:
    """Add the difference between the clocks of this machine and the fleet, as last read, to `registry`."""
    offset = Gauge(
        "fleetlight_clock_offset_seconds",
        "How far the clock of this machine is ahead of the clock of the fleet database.",
        registry=registry,
    )
    offset.set_function(lambda: clock.offset_s)

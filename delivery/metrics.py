"""Metrics of a deliverer, for Prometheus."""

from collections.abc import Mapping
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge

OUTCOMES = ("delivered", "refused", "away", "unwanted")
STATES = ("active", "failing", "paused", "suspended", "ended")


class DelivererMetrics:
    """The deliverer's metrics, registered in `registry`; one object per registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        gauge = partial(Gauge, registry=registry)
        counter = partial(Counter, registry=registry)
        self.attempts = counter(
            "fleetlight_deliverer_attempts",
            "Attempts to deliver an event of a subscription, by what came of them",
            ["outcome"],
        )
        self.put_aside = counter(
            "fleetlight_deliverer_put_aside_events",
            "Events that their target refused too often, which are kept to be looked at",
        )
        self._subscriptions = gauge(
            "fleetlight_deliverer_subscriptions",
            "Subscriptions of the fleet, by state; failing: active, and the last attempt failed",
            ["state"],
        )
        for outcome in OUTCOMES:
            self.attempts.labels(outcome)

    def counted(self, subscriptions: Mapping[str, int]) -> None:
        """Set the number of subscriptions in each of STATES."""
        for state in STATES:
            self._subscriptions.labels(state).set(subscriptions.get(state, 0))

"""Metrics of a deliverer, for Prometheus."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge

OUTCOMES = ("delivered", "refused", "away", "unwanted")
STATES = ("active", "failing", "paused", "suspended", "ended")


class DelivererMetrics:
    """In the `registry` that is passed in; one object per registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._attempts = Counter(
            "fleetlight_deliverer_attempts",
            "Attempts to deliver an event of a subscription, by what came of them",
            ["outcome"],
            registry=registry,
        )
        self._put_aside = Counter(
            "fleetlight_deliverer_put_aside_events",
            "Events that their target refused too often, which are kept to be looked at",
            registry=registry,
        )
        self._subscriptions = Gauge(
            "fleetlight_deliverer_subscriptions",
            "Subscriptions of the fleet, by state; failing: active, and the last attempt failed",
            ["state"],
            registry=registry,
        )
        for outcome in OUTCOMES:
            self._attempts.labels(outcome)

    def attempted(self, outcome: str) -> None:
        """outcome: of OUTCOMES."""
        self._attempts.labels(outcome).inc()

    def put_aside(self) -> None:
        self._put_aside.inc()

    def counted(self, subscriptions: Mapping[str, int]) -> None:
        """How many there are in each of STATES."""
        for state in STATES:
            self._subscriptions.labels(state).set(subscriptions.get(state, 0))

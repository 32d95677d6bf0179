"""Errors of deliveries.

DeliveryError
└── StopDeliveryError    nothing more of a subscription is delivered
"""

from fleetlight.cells.fleet.subscriptions import SubscriptionState


class DeliveryError(Exception):
    """Base of the errors of deliveries."""


class StopDeliveryError(DeliveryError):
    """Nothing more is delivered: the subscription changes to this `state`."""

    def __init__(self, state: SubscriptionState, reason: str) -> None:
        super().__init__(reason)
        self.state = state
        self.reason = reason

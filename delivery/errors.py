"""Errors of deliveries.

DeliveryError
└── StopDeliveryError    nothing more of a subscription is delivered
"""

from fleetlight.cells.fleet.subscriptions import SubscriptionState


class DeliveryError(Exception):
    """Something is wrong with a delivery."""


class StopDeliveryError(DeliveryError):
    """Nothing more is delivered: the subscription is in this `state` from now on."""

    def __init__(self, state: SubscriptionState, reason: str) -> None:
        super().__init__(reason)
        self.state = state
        self.reason = reason

"""The routes of subscriptions."""

from collections.abc import Sequence

from starlette.routing import Route

from fleetlight.api.services import Services
from fleetlight.api.subscriptions import handlers as operations
from fleetlight.api.subscriptions.handlers import SubscriptionHandlers


def routes(services: Services) -> Sequence[Route]:
    handlers, route = SubscriptionHandlers(services), services.middleware.route
    return [
        route(operations.SUBSCRIPTIONS, handlers.index),
        route(operations.SUBSCRIBE, handlers.create),
        route(operations.SUBSCRIPTION, handlers.show),
        route(operations.UNSUBSCRIBE, handlers.remove),
        route(operations.PAUSE, handlers.pause),
        route(operations.RESUME, handlers.resume),
        route(operations.TEST, handlers.test),
        route(operations.FAILURES, handlers.failures),
        route(operations.REPLAY, handlers.replay),
        route(operations.SKIP, handlers.skip),
    ]

"""The face `/fleetlight/destinations`: hosts for instances, claimed and given back, and those that could be claimed."""

from collections.abc import Sequence

from starlette.routing import Route

from fleetlight.api.scheduling.candidates import CANDIDATES, CandidatesHandler
from fleetlight.api.scheduling.destinations import RELEASE_DESTINATION, SELECT_DESTINATIONS, DestinationsHandler
from fleetlight.api.services import Services


def routes(services: Services) -> Sequence[Route]:
    destinations = DestinationsHandler(services.access)
    route = services.middleware.route
    return [
        route(SELECT_DESTINATIONS, destinations.select),
        route(RELEASE_DESTINATION, destinations.release),
        route(CANDIDATES, CandidatesHandler(services.access).show),
    ]

"""The face `/image`: the images that the catalog of our own identity service names."""

from collections.abc import Sequence

from starlette.routing import Route

from fleetlight.api.identity.openid.strategy import embedded_service
from fleetlight.api.image.handlers import ImageHandlers
from fleetlight.api.image.shelved_servers import ShelvedServers
from fleetlight.api.services import Services


def routes(services: Services) -> Sequence[Route]:
    """None where another service, or none, has the images."""
    parts = services.parts
    if embedded_service(parts.identity) is None:
        return []
    shelved = ShelvedServers(parts.cells, parts.search.cell_timeout_s)
    return ImageHandlers(parts.identity, parts.api.compute_link_prefix, shelved).routes()

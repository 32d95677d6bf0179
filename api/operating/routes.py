"""The addresses by which administrators see and order what operators do."""

from collections.abc import Sequence

from starlette.routing import Route

from fleetlight.api.operating.cells import CELLS, CellsHandler
from fleetlight.api.services import Services


def routes(services: Services) -> Sequence[Route]:
    """Of all that is below."""
    cells = CellsHandler(services)
    return [services.middleware.route(CELLS, cells.show)]

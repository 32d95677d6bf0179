"""The routes of operators."""

from collections.abc import Sequence

from starlette.routing import Route

from fleetlight.api.operating.cells import CELLS, CellsHandler
from fleetlight.api.operating.failures import DROP_FAILURE, LIST_FAILURES, RETRY_FAILURE, SHOW_AUDIT, FailureHandlers
from fleetlight.api.operating.findings import FINDING_METRICS, LIST_FINDINGS, FindingsHandler
from fleetlight.api.operating.index_work import LIST_WORK, ORDER_WORK, SHOW_WORK, STOP_WORK, WorkHandlers
from fleetlight.api.operating.series import SERIES, Series
from fleetlight.api.query.engine import QueryEngine
from fleetlight.api.services import Services
from fleetlight.listing.cell_board import CellBoard


def routes(services: Services, query_engine: QueryEngine, board: CellBoard, series: Series) -> Sequence[Route]:
    """Make the routes of all handlers of this folder."""
    findings = FindingsHandler(services, query_engine)
    cells, work, failures = CellsHandler(services, board), WorkHandlers(services), FailureHandlers(services)
    route = services.middleware.route
    return [
        route(CELLS, cells.show),
        route(ORDER_WORK, work.order),
        route(LIST_WORK, work.list_all),
        route(SHOW_WORK, work.show),
        route(STOP_WORK, work.stop),
        route(LIST_FAILURES, failures.list_page),
        route(RETRY_FAILURE, failures.retry),
        route(DROP_FAILURE, failures.drop),
        route(SHOW_AUDIT, failures.audit),
        route(LIST_FINDINGS, findings.list_all),
        route(FINDING_METRICS, findings.metrics),
        route(SERIES, series.show),
    ]

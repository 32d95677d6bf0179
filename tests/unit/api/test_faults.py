"""What callers are told of requests that failed."""

import msgspec

from fleetlight.api.http.faults import fault_of
from fleetlight.cells.errors import CellUnreachableError


def test_who_needs_a_cell_that_is_down_is_told_so_but_not_where_its_database_is() -> None:
    answer = fault_of(CellUnreachableError("cell7", "connection to db7.example.org refused"))
    assert answer.status_code == 500
    assert msgspec.json.decode(answer.body)["computeFault"] == {
        "code": 500,
        "message": "The cell that holds what was asked for cannot be reached. Try again later.",
    }

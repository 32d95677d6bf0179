"""Errors of lists, and of requests for one instance.

ListingError
├── MarkerNotFoundError  no instance has the uuid of the marker
├── TokenError           no finished operation has handed out this token to the caller
├── CellDownError        the only cell that could answer does not answer
├── TooManyGroupsError   the sums have more groups than one answer may have
└── RightsLostError      the reader of a stream has lost the right to read it
"""


class ListingError(Exception):
    """A request about instances cannot be answered; the caller sees the text."""


class MarkerNotFoundError(ListingError):
    """No instance has the uuid `marker`."""

    def __init__(self, marker: str) -> None:
        super().__init__(f"marker [{marker}] not found")
        self.marker = marker


class TokenError(ListingError):
    """No finished operation has handed out such tokens to the caller."""


class CellDownError(ListingError):
    """The only cell that could answer cannot be reached. `cell` is for the log; the caller does not see it."""

    def __init__(self, cell: str) -> None:
        super().__init__("The cell that holds what was asked for cannot be reached. Try again later.")
        self.cell = cell


class RightsLostError(ListingError):
    """The reader of a stream may not read on; the stream ends, and tells its reader the `reason`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class TooManyGroupsError(ListingError):
    """A sum has more than `limit` groups."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"by: there are more than {limit:,} groups; ask for a shorter period, or group by less")
        self.limit = limit

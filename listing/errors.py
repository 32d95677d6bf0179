"""Errors of lists, and of requests for one instance.

ListingError
├── MarkerNotFoundError  no instance has the uuid of the marker
├── TokenError           a token that no finished operation has handed out to the caller
├── CellDownError        the one cell that could answer does not
├── TooManyGroupsError   sums that are apart by more than one answer has
└── RightsLostError      the reader of a stream may not read it any more
"""


class ListingError(Exception):
    """A request about instances that cannot be answered; the text is shown to the caller."""


class MarkerNotFoundError(ListingError):
    """No instance has the uuid `marker`."""

    def __init__(self, marker: str) -> None:
        super().__init__(f"marker [{marker}] not found")
        self.marker = marker


class TokenError(ListingError):
    """No finished operation has handed out such tokens to the caller."""


class CellDownError(ListingError):
    """The cell that alone could answer cannot be reached. Its name is for the log, not for the caller."""

    def __init__(self, cell: str) -> None:
        super().__init__("The cell that holds what was asked for cannot be reached. Try again later.")
        self.cell = cell


class RightsLostError(ListingError):
    """The stream has to end; `reason` is for its reader."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class TooManyGroupsError(ListingError):
    """What is added up falls into more than `limit` groups."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"by: there are more than {limit:,} groups; ask for a shorter period, or group by less")
        self.limit = limit

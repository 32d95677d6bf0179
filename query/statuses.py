"""The status of a value in an answer to a query (contracts/ganeti-query2, section 4)."""

from enum import IntEnum


class Status(IntEnum):
    """Why a value is there, or is not; a value whose status is not NORMAL is null."""

    NORMAL = 0
    UNKNOWN = 1  # no such field
    NODATA = 2  # could not be fetched now
    UNAVAIL = 3  # does not apply to this item
    OFFLINE = 4  # the item, or the node it is on, is marked offline


# What people are shown instead of the value: in words, and as short as can be.
VERBOSE = {
    Status.UNKNOWN: "(unknown)",
    Status.NODATA: "(nodata)",
    Status.UNAVAIL: "(unavail)",
    Status.OFFLINE: "(offline)",
}
TERSE = {Status.UNKNOWN: "??", Status.NODATA: "?", Status.UNAVAIL: "-", Status.OFFLINE: "*"}

"""Which failures end the work on one instance, and which are of a database and are tried again."""

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from fleetlight.cells.database.engines import needs_an_operator
from fleetlight.cells.errors import CellUnreachableError, FleetUnreachableError, UnreadableRowError
from fleetlight.cells.kinds.native.instance_rows import is_damage

_AWAY = (CellUnreachableError, FleetUnreachableError, OperationalError, InterfaceError, PoolTimeoutError)
# A standby that is no primary yet, which psycopg does not count among the errors of operation.
_READ_ONLY = "25006"


def ends_alone(error: Exception) -> bool:
    """Whether `error` is about one instance or its job, so that the work on others can go on."""
    if isinstance(error, UnreadableRowError) or is_damage(error):
        return True
    return not (isinstance(error, _AWAY) or _is_lost(error) or needs_an_operator(error))


def _is_lost(error: Exception) -> bool:
    """Whether the connection broke, or leads to a server that takes no changes now."""
    if not isinstance(error, DBAPIError):
        return False
    return error.connection_invalidated or getattr(error.orig, "sqlstate", None) == _READ_ONLY

"""Which failures end the work on one instance, and which are of a database and are tried again."""

from sqlalchemy.exc import InterfaceError, OperationalError

from cells.database.engines import needs_an_operator
from cells.errors import CellUnreachableError, FleetUnreachableError, UnreadableRowError
from cells.kinds.native.instance_rows import is_damage

_AWAY = (CellUnreachableError, FleetUnreachableError, OperationalError, InterfaceError)


def ends_alone(error: Exception) -> bool:
    """Whether `error` is about one instance or its job, so that the work on others can go on."""
    if isinstance(error, UnreadableRowError) or is_damage(error):
        return True
    return not (isinstance(error, _AWAY) or needs_an_operator(error))

"""The status of hosts from the services of a cell of Nova (contracts/nova-db, 2: `host_status`)."""

from collections.abc import Mapping

from sqlalchemy import Connection, select

from fleetlight.cells.kinds.nova_db.tables import services

_COMPUTE = "nova-compute"
# Nova's service_down_time, unless it is configured.
_DOWN_AFTER_US = 60_000_000


def host_statuses(connection: Connection, now: int) -> Mapping[str, str]:
    """The status that servers show, by host. now: microseconds since the epoch."""
    of = services.c
    columns = (of.host, of.disabled, of.forced_down, of.last_seen_up, of.created_at)
    rows = connection.execute(select(*columns).where(of.deleted == 0, of.binary == _COMPUTE)).all()
    return {
        host: _status(
            is_disabled=bool(disabled), is_forced_down=bool(forced_down), heard_of_at=seen_at or created_at, now=now
        )
        for host, disabled, forced_down, seen_at, created_at in rows
    }


def _status(*, is_disabled: bool, is_forced_down: bool, heard_of_at: int | None, now: int) -> str:
    """The status of a host; UNKNOWN if its service has been silent for too long."""
    if is_forced_down:
        return "DOWN"
    if is_disabled:
        return "MAINTENANCE"
    is_fresh = heard_of_at is not None and abs(now - heard_of_at) <= _DOWN_AFTER_US
    return "UP" if is_fresh else "UNKNOWN"

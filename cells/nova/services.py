"""What the services of a cell of Nova say of its hosts (contracts/nova-db, 2: `host_status`)."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, select

from cells.nova.tables import services

_COMPUTE = "nova-compute"
# Nova's service_down_time, unless it is configured.
_DOWN_AFTER_US = 60_000_000


def host_statuses(connection: Connection, now: int) -> Mapping[str, str]:
    """By host, what servers on it show. now: microseconds since the epoch."""
    of = services.c
    columns = (of.host, of.disabled, of.forced_down, of.last_seen_up, of.created_at)
    rows = connection.execute(select(*columns).where(of.deleted == 0, of.binary == _COMPUTE)).all()
    return {row.host: _status(row, now) for row in rows}


def _status(service: Row[Any], now: int) -> str:
    """A service that was not heard of for too long says nothing of its host."""
    if service.forced_down:
        return "DOWN"
    if service.disabled:
        return "MAINTENANCE"
    seen_at = service.last_seen_up or service.created_at
    return "UP" if seen_at is not None and abs(now - seen_at) <= _DOWN_AFTER_US else "UNKNOWN"

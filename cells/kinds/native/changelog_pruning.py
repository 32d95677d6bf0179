"""Prunes changes of a native cell that are older than its retention."""

import time

from sqlalchemy import Engine, delete, func, select, update

from fleetlight.cells.database.engines import writing
from fleetlight.cells.tables import cell_state, changes
from fleetlight.resources.clock import Clock
from fleetlight.resources.units import MICROSECONDS_PER_HOUR

_INTERVAL_S = 60.0
_BATCH_SIZE = 1000


class ChangelogPruning:
    """Prunes from the oldest change on, so that the changelog never has a hole."""

    def __init__(self, engine: Engine, clock: Clock, *, retention_h: float) -> None:
        self._engine = engine
        self._clock = clock
        self._retention_us = round(retention_h * MICROSECONDS_PER_HOUR)
        self._due_s = 0.0

    def prune_when_due(self) -> None:
        """Prune at most one batch; due again at once after a full batch, otherwise after a minute."""
        now = time.monotonic()
        if now >= self._due_s and self._prune() < _BATCH_SIZE:
            self._due_s = now + _INTERVAL_S

    def _prune(self) -> int:
        """Prune a batch; returns the number of pruned changes."""
        horizon = self._clock() - self._retention_us
        front = (
            select(changes.c.sequence, changes.c.published_at)
            .where(changes.c.sequence.is_not(None))
            .order_by(changes.c.sequence)
            .limit(_BATCH_SIZE)
        )
        with self._engine.connect() as connection:
            expired = 0
            last_expired = 0
            for sequence, published_at in connection.execute(front):
                if published_at is None or published_at >= horizon:
                    break
                expired += 1
                last_expired = sequence
        if expired:
            is_expired = changes.c.sequence <= last_expired
            latest = select(func.max(changes.c.committed_at)).where(is_expired)
            with writing(self._engine) as connection:
                forgotten_until: int = connection.scalar(latest) or 0
                connection.execute(
                    update(cell_state)
                    .where(cell_state.c.forgotten_until < forgotten_until)
                    .values(forgotten_until=forgotten_until)
                )
                connection.execute(delete(changes).where(is_expired))
        return expired

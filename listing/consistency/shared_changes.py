"""Own changes that every API process of the fleet knows of (docs/decisions/0004).

A process that has changed an instance shares that with the others through the fleet database, and answers its caller no
sooner than they must have read it: a list takes what was read at most `_READ_AGAIN_S` ago. So no list that is requested
after the answer lacks the change, whichever process it reaches, and no list waits for a query of its own.
"""

import asyncio
import time
from collections.abc import Collection, Sequence
from functools import partial
from uuid import uuid4

import structlog

from fleetlight.cells.errors import FleetUnreachableError
from fleetlight.cells.fleet.recent_changes import RecentChange, RecentChanges
from fleetlight.cells.model import InstanceRow
from fleetlight.listing.consistency.own_changes import OwnChange, OwnChanges
from fleetlight.listing.consistency.tokens import ChangeToken
from fleetlight.listing.sources import ask_fleet
from fleetlight.resources.clock import Clock

_log = structlog.get_logger(__name__)
_READ_AGAIN_S = 0.05
_WAIT_S = _READ_AGAIN_S + 0.005
# What is read has been read before, but for this: a transaction commits somewhat later than it says.
_OVERLAP_S = 1.0
_LISTEN_AGAIN_S = 5.0
_FORGET_AGAIN_S = 5.0
_TIME_LIMIT_S = 0.5
_AFTER_FAILURE_S = 1.0
_NEVER = float("-inf")


class SharedChanges:
    """What this process notes, and what other processes share. A fleet database that fails makes no list and no change
    fail.

    kept_s: as of OwnChanges.
    """

    def __init__(self, store: RecentChanges, kept_s: float, clock: Clock) -> None:
        self._store = store
        self._kept_s = kept_s
        self._own = OwnChanges(kept_s, clock)
        self._process = str(uuid4())
        self._forgot_at = self._listened_at = self._read_at = self._asked_at = _NEVER
        self._reading: asyncio.Task[None] | None = None

    async def share(self, readers: Collection[str], row: InstanceRow) -> None:
        """The lists of `readers` include `row`, of a native cell, from now on, in every process."""
        changes = [change for reader in readers if (change := self._own.note(reader, row)) is not None]
        unshared = [change for change in changes if change.sharing is None]
        if unshared:
            sharing = asyncio.create_task(self._share(unshared))
            for change in unshared:
                change.sharing = sharing
        for sharing in {change.sharing for change in changes if change.sharing is not None}:
            await asyncio.shield(sharing)

    async def of(self, reader: str) -> Sequence[OwnChange]:
        """What the lists of `reader` have to include, the newest last."""
        wanted = time.monotonic() - _READ_AGAIN_S
        while self._asked_at < wanted:
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._read())
            await asyncio.shield(self._reading)
        return self._own.of(reader)

    async def _share(self, changes: Sequence[OwnChange]) -> None:
        shared = [
            RecentChange(change.reader, change.cell_uuid, change.token.instance_uuid, change.token.revision)
            for change in changes
        ]
        now = time.monotonic()
        forgets = now - self._forgot_at > _FORGET_AGAIN_S
        self._forgot_at = now if forgets else self._forgot_at
        add = partial(self._store.add, self._process, shared, self._kept_s if forgets else None)
        try:
            others_listen = await ask_fleet(add, _TIME_LIMIT_S)
        except FleetUnreachableError as error:
            _log.warning("changes_not_shared", reason=error.reason)
        else:
            if others_listen:
                await asyncio.sleep(_WAIT_S)

    async def _read(self) -> None:
        asked_at = time.monotonic()
        listens = asked_at - self._listened_at > _LISTEN_AGAIN_S
        age_s = min(self._kept_s, asked_at - self._read_at + _OVERLAP_S)

        def read() -> Sequence[RecentChange]:
            if listens:
                self._store.listen(self._process)
            return self._store.newer_than(age_s, self._process)

        try:
            found = await ask_fleet(read, _TIME_LIMIT_S)
        except FleetUnreachableError as error:
            _log.warning("changes_of_other_processes_unknown", reason=error.reason)
            self._asked_at = time.monotonic() + _AFTER_FAILURE_S
            return
        for change in found:
            token = ChangeToken(change.instance_uuid, change.revision)
            noted = self._own.note_token(change.reader, change.cell_uuid, token, change.noted_at)
            noted.sharing = noted.sharing or asyncio.current_task()  # it is, and not to be again
        self._asked_at = self._read_at = asked_at
        if listens:
            self._listened_at = asked_at

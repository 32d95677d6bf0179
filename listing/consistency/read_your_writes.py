"""Read your own writes: a list reads those cells live whose latest changes by its caller the index lacks.

A client without tokens lists a change a moment after it made it, and before the index has it. So each API process notes
what a project has just changed or seen, and includes it in the project's next lists. A process that has changed an
instance shares the change with the other API processes through the fleet database (docs/decisions/0003), and answers
its caller only when they must have read it: a list uses shared changes that were read at most `_READ_AGAIN_S` ago. So
no list requested after the answer lacks the change, at whichever process, and no list waits for a query of its own.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from uuid import uuid4

import structlog
from sqlalchemy import Engine

from fleetlight.cells.change_positions import Numbered, position_of
from fleetlight.cells.errors import CellUnreachableError, ChangeNotFoundError, FleetUnreachableError
from fleetlight.cells.fan_out.cell_pool import CellPool
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.fleet.recent_changes import RecentChange, RecentChanges
from fleetlight.cells.model import Cell, InstanceRow
from fleetlight.indexer.backends.base import CellProgress
from fleetlight.listing.consistency.tokens import ChangeToken, unknown_token
from fleetlight.listing.errors import CellDownError
from fleetlight.listing.find_instance import InstanceFinder, MaySee
from fleetlight.listing.index_gateway import IndexGateway
from fleetlight.listing.settings import SearchSettings
from fleetlight.listing.sources import CellReader, ask_fleet
from fleetlight.resources.clock import Clock, system_clock
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

_log = structlog.get_logger(__name__)
_READ_AGAIN_S = 0.05
_WAIT_S = _READ_AGAIN_S + 0.005
# Each read overlaps the one before by so much, since a transaction commits later than its timestamp says.
_OVERLAP_S = 1.0
_LISTEN_AGAIN_S = 5.0
_FORGET_AGAIN_S = 5.0
_TIME_LIMIT_S = 0.5
_AFTER_FAILURE_S = 1.0
_NEVER = float("-inf")
_MAX_NOTES = 10_000
_POLL_INTERVAL_S = 0.05


class OwnChange:
    """A state of an instance that the lists of `reader` include.

    changed_at: microseconds; tells states apart when a cell restored from a backup gives out a revision again.
    position: the change's place in the changelog, once known. is_indexed: whether the index is known to have the
    change. sharing: the task that shares it with the other API processes.
    """

    __slots__ = ("cell_uuid", "changed_at", "is_indexed", "position", "reader", "sharing", "token")

    def __init__(self, reader: str, cell_uuid: str, token: ChangeToken, changed_at: int) -> None:
        self.reader = reader
        self.cell_uuid = cell_uuid
        self.token = token
        self.changed_at = changed_at
        self.position: Numbered | None = None
        self.is_indexed = False
        self.sharing: asyncio.Task[None] | None = None

    def covers(self, other: "OwnChange") -> bool:
        """Whether this state of the instance is at least as new as `other`."""
        return self.token.revision >= other.token.revision and self.changed_at >= other.changed_at


class OwnChanges:
    """Remembers own changes for `kept_s` seconds in this process, by reader: a project, or a user without one.

    kept_s: at least `search.staleness_limit_s`, after which the index has the change or counts as stale.
    """

    def __init__(self, kept_s: float, clock: Clock) -> None:
        self._kept_us = round(kept_s * MICROSECONDS_PER_SECOND)
        self._clock = clock
        # By instance, the newest last. Two states of an instance are kept while neither is known to be newer.
        self._of_reader: dict[str, dict[str, list[OwnChange]]] = {}
        self._ends: deque[tuple[int, OwnChange]] = deque()

    def note(self, reader: str, row: InstanceRow) -> OwnChange | None:
        """Note `row`, of a native cell, for the lists of `reader`; None if it changed longer ago than `kept_s`.

        Returns the existing note if there is one of this state or a newer one.
        """
        changed_at = max(row.record["updated_at"] or 0, row.record["created_at"] or 0)
        if self._clock() - changed_at > self._kept_us:
            return None
        return self.note_token(reader, row.cell_uuid, ChangeToken.of(row), changed_at)

    def note_token(self, reader: str, cell_uuid: str, token: ChangeToken, changed_at: int) -> OwnChange:
        """As `note`, for a state that is known to be recent."""
        now = self._clock()
        self._forget_old(now)
        changes = self._of_reader.setdefault(reader, {})
        known = changes.get(token.instance_uuid, [])
        change = OwnChange(reader, cell_uuid, token, changed_at)
        for state in known:
            if state.covers(change):
                return state  # a concurrent request noted a newer state
        # Reinsert at the end: the index reaches the newest change last.
        changes.pop(token.instance_uuid, None)
        changes[token.instance_uuid] = [*(state for state in known if not change.covers(state)), change]
        self._ends.append((now + self._kept_us, change))
        return change

    def of(self, reader: str) -> Sequence[OwnChange]:
        """Return the noted changes of `reader` that the index is not known to have, the newest last."""
        if reader not in self._of_reader:
            return ()
        self._forget_old(self._clock())
        states = chain.from_iterable(self._of_reader.get(reader, {}).values())
        return [change for change in states if not change.is_indexed]

    def _forget(self, change: OwnChange) -> None:
        changes = self._of_reader.get(change.reader, {})
        states = changes.get(change.token.instance_uuid, [])
        # A newer state of the instance may have replaced it.
        if change in states:
            states.remove(change)
            if not states:
                del changes[change.token.instance_uuid]
            if not changes:
                del self._of_reader[change.reader]

    def _forget_old(self, now: int) -> None:
        while self._ends and (self._ends[0][0] < now or len(self._ends) > _MAX_NOTES):
            self._forget(self._ends.popleft()[1])


class SharedChanges:
    """The own changes of this process and those that other processes share. A failing fleet database fails no request.

    kept_s: see OwnChanges.
    """

    def __init__(self, store: RecentChanges, kept_s: float, clock: Clock) -> None:
        self._store = store
        self._kept_s = kept_s
        self._own = OwnChanges(kept_s, clock)
        self._process = str(uuid4())
        self._forgot_at = self._listened_at = self._read_at = self._asked_at = _NEVER
        self._reading: asyncio.Task[None] | None = None

    async def share(self, readers: Collection[str], row: InstanceRow) -> None:
        """Have the lists of `readers` include `row`, of a native cell, from now on in every process."""
        changes = [change for reader in readers if (change := self._own.note(reader, row)) is not None]
        unshared = [change for change in changes if change.sharing is None]
        if unshared:
            sharing = asyncio.create_task(self._share(unshared))
            for change in unshared:
                change.sharing = sharing
        for sharing in {change.sharing for change in changes if change.sharing is not None}:
            await asyncio.shield(sharing)

    async def of(self, reader: str) -> Sequence[OwnChange]:
        """Return the changes that the lists of `reader` must include, the newest last."""
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
            noted.sharing = noted.sharing or asyncio.current_task()  # so that this process does not share it again
        self._asked_at = self._read_at = asked_at
        if listens:
            self._listened_at = asked_at


class ReadYourWrites:
    """Finds the cells that a list must read live, since the index lacks changes that the list must include.

    reader: the cells that lists ask. pool: queries native cells. engine: opens the database of a native cell.
    cell_timeout_s: the longest time limit of one cell, `search.cell_timeout_s`.
    """

    def __init__(
        self,
        fleet: Fleet,
        index: IndexGateway,
        settings: SearchSettings,
        *,
        reader: CellReader,
        finder: InstanceFinder,
        pool: CellPool,
        engine: Callable[[Cell], Engine],
        clock: Clock = system_clock,
    ) -> None:
        self._fleet = fleet
        self._reader = reader
        self._finder = finder
        self._pool = pool
        self._engine = engine
        self._index = index
        self._settings = settings
        self.cell_timeout_s = settings.cell_timeout_s
        # Twice the limit, since the clocks of this process and of the one that shares a change may differ.
        self._changes = SharedChanges(fleet.recent_changes, 2 * settings.staleness_limit_s, clock)

    async def include(self, row: InstanceRow, reader: str) -> None:
        """Have the lists of `reader`, and of the instance's project, include this state of an instance from now on.

        row: of a native cell. reader: the project, or the user without one, that has changed or seen the instance.
        """
        if self._index.is_used:
            await self._changes.share({reader, row.record["project_id"] or reader}, row)

    async def cells_to_ask(self, tokens: Sequence[ChangeToken], may_see: MaySee) -> Collection[str]:
        """Wait until the index has the changes of `tokens`; returns the uuids of the cells where it is still behind.

        Raises TokenError for a token that no operation handed out to the caller.
        """
        try:
            found = await self._cells_of(tokens, may_see)
        except (FleetUnreachableError, CellDownError):
            # The cells of the tokens are unknown, so the list reads all cells live.
            return {cell.uuid for cell in await self._reader.cells()}
        listed = {cell.uuid for cell in await self._reader.cells()}
        # Ask cells that number no changes, and cells that joined so recently that the reader does not list them yet.
        to_ask = {cell.uuid for cell in found.values() if not cell.can.numbers_changes or cell.uuid not in listed}
        waiting = {token: cell for token, cell in found.items() if cell.uuid not in to_ask}
        positions: dict[ChangeToken, Numbered] = {}
        deadline = time.monotonic() + self._settings.token_wait_s
        while True:
            to_ask |= await self._look_up(waiting, positions)
            followed = await self._index.followed(_POLL_INTERVAL_S)
            to_ask |= {cell.uuid for cell in waiting.values() if cell.uuid not in followed}
            waiting = {
                token: cell
                for token, cell in waiting.items()
                if cell.uuid not in to_ask and not _is_known(positions.get(token), followed[cell.uuid])
            }
            if not waiting:
                return to_ask
            if time.monotonic() >= deadline:
                return to_ask | {cell.uuid for cell in waiting.values()}
            await asyncio.sleep(_POLL_INTERVAL_S)

    async def cells_behind(self, reader: str) -> Collection[str]:
        """Return the uuids of the cells of which the index lacks own changes of `reader`, so that lists read them live.

        Lists do not wait for the index here: the cell answers sooner, and only until the index has caught up.
        """
        # Without an index a list asks all cells anyway.
        noted = () if self._index.why_not is not None else await self._changes.of(reader)
        if not noted:
            return ()
        followed = await self._index.followed(_POLL_INTERVAL_S)
        cells = {cell.uuid: cell for cell in await self._reader.cells()}
        by_cell: dict[str, list[OwnChange]] = {}
        for change in reversed(noted):  # the newest first, since the index reaches it last
            by_cell.setdefault(change.cell_uuid, []).append(change)

        async def is_behind(uuid: str) -> bool:
            if uuid not in followed or uuid not in cells:
                return True
            for change in by_cell[uuid]:
                if not await self._is_in(followed[uuid], cells[uuid], change):
                    return True
                change.is_indexed = True
            return False

        answers = await asyncio.gather(*map(is_behind, by_cell))
        return {uuid for uuid, answer in zip(by_cell, answers, strict=True) if answer}

    async def _is_in(self, progress: CellProgress, cell: Cell, change: OwnChange) -> bool:
        """Whether the index has a change, or never can, since the cell was restored to a state without it."""
        if change.position is None:
            try:
                position = await self._position_of(change.token, cell)
            except ChangeNotFoundError:
                return True
            if isinstance(position, _Down):
                return False
            change.position = position
        return _is_known(change.position, progress)

    async def _cells_of(self, tokens: Sequence[ChangeToken], may_see: MaySee) -> Mapping[ChangeToken, Cell]:
        timeout_s = self._settings.cell_timeout_s
        cells = {cell.uuid: cell for cell in await ask_fleet(self._fleet.cells, timeout_s)}
        found = {}
        for token in tokens:
            mapping = await self._finder.mapping_of(token.instance_uuid, timeout_s)
            if mapping is None or mapping.cell_uuid not in cells or not may_see(mapping.project_id, mapping.user_id):
                raise unknown_token(str(token))
            found[token] = cells[mapping.cell_uuid]
        return found

    async def _look_up(self, waiting: Mapping[ChangeToken, Cell], positions: dict[ChangeToken, Numbered]) -> set[str]:
        """Add the `positions` that cells have assigned meanwhile; returns the uuids of cells that do not answer."""
        missing = [token for token in waiting if token not in positions]
        answers = await asyncio.gather(*(self._known_position_of(token, waiting[token]) for token in missing))
        positions.update(
            {token: answer for token, answer in zip(missing, answers, strict=True) if isinstance(answer, Numbered)}
        )
        return {answer.cell.uuid for answer in answers if isinstance(answer, _Down)}

    async def _known_position_of(self, token: ChangeToken, cell: Cell) -> "Numbered | _Down | None":
        """As `_position_of`. Raises TokenError for a token that no operation handed out."""
        try:
            return await self._position_of(token, cell)
        except ChangeNotFoundError:
            raise unknown_token(str(token)) from None

    async def _position_of(self, token: ChangeToken, cell: Cell) -> "Numbered | _Down | None":
        """Return the changelog position of a change; None if it has no number yet. Raises ChangeNotFoundError."""

        def ask() -> Numbered | None:
            return position_of(self._engine(cell), cell, token.instance_uuid, token.revision)

        try:
            return await self._pool.ask_known(cell, ask, self._settings.cell_timeout_s)
        except CellUnreachableError:
            return _Down(cell)


def _is_known(position: Numbered | None, progress: CellProgress) -> bool:
    """Whether the index has the change at `position`, which is None while the change has no number."""
    return position is not None and position.is_covered_by(progress.epoch, progress.watermark)


@dataclass(frozen=True, slots=True)
class _Down:
    cell: Cell

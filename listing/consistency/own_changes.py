"""Changes that a project has just made or seen, and that its next lists must not lack.

A client that knows nothing of tokens lists what it has changed a moment ago, and the index follows a moment later.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import chain

from fleetlight.cells.change_positions import Numbered
from fleetlight.cells.model import InstanceRow
from fleetlight.listing.consistency.tokens import ChangeToken
from fleetlight.resources.clock import Clock
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

_MAX_NOTES = 10_000


class OwnChange:
    """A state of an instance that the lists of `reader` include.

    changed_at: when, in microseconds: a cell that was restored from a backup gives out the same revisions again.
    position: where it is in the changelog, once that is known. is_indexed: whether the index is known to
    have it. sharing: the task that passes it to the other API processes.
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
        """Whether a list with this state of the instance lacks nothing of the `other` one."""
        return self.token.revision >= other.token.revision and self.changed_at >= other.changed_at


class OwnChanges:
    """Remembers them for `kept_s` seconds, in the memory of this process, by reader: a project, or a user without one.

    kept_s: no less than `search.staleness_limit_s`: an index has the change after that, or counts as stale.
    """

    def __init__(self, kept_s: float, clock: Clock) -> None:
        self._kept_us = round(kept_s * MICROSECONDS_PER_SECOND)
        self._clock = clock
        # By instance, the newest last. Of most there is one state; of two it is not known which one is newer.
        self._of_reader: dict[str, dict[str, list[OwnChange]]] = {}
        self._ends: deque[tuple[int, OwnChange]] = deque()

    def note(self, reader: str, row: InstanceRow) -> OwnChange | None:
        """The lists of `reader` include `row`, of a native cell; None when it was changed longer ago than `kept_s`.

        What was noted already, of this state or a newer one, is what is returned.
        """
        changed_at = max(row.record["updated_at"] or 0, row.record["created_at"] or 0)
        if self._clock() - changed_at > self._kept_us:
            return None
        return self.note_token(reader, row.cell_uuid, ChangeToken.of(row), changed_at)

    def note_token(self, reader: str, cell_uuid: str, token: ChangeToken, changed_at: int) -> OwnChange:
        """As `note`, of a state that is known to be new."""
        now = self._clock()
        self._forget_old(now)
        changes = self._of_reader.setdefault(reader, {})
        known = changes.get(token.instance_uuid, [])
        change = OwnChange(reader, cell_uuid, token, changed_at)
        for state in known:
            if state.covers(change):
                return state  # of requests that ran at the same time, this one was the older one, or only looked
        # To the end: the newest is what the index reaches last.
        changes.pop(token.instance_uuid, None)
        changes[token.instance_uuid] = [*(state for state in known if not change.covers(state)), change]
        self._ends.append((now + self._kept_us, change))
        return change

    def of(self, reader: str) -> Sequence[OwnChange]:
        """What was noted for `reader` lately, and is not in the index as far as is known, the newest last."""
        if reader not in self._of_reader:
            return ()
        self._forget_old(self._clock())
        states = chain.from_iterable(self._of_reader.get(reader, {}).values())
        return [change for change in states if not change.is_indexed]

    def _forget(self, change: OwnChange) -> None:
        changes = self._of_reader.get(change.reader, {})
        states = changes.get(change.token.instance_uuid, [])
        # A newer one of that instance may have taken its place.
        if change in states:
            states.remove(change)
            if not states:
                del changes[change.token.instance_uuid]
            if not changes:
                del self._of_reader[change.reader]

    def _forget_old(self, now: int) -> None:
        while self._ends and (self._ends[0][0] < now or len(self._ends) > _MAX_NOTES):
            self._forget(self._ends.popleft()[1])

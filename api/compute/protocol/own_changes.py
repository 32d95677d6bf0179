"""What the requests of a project have just changed, or were just shown: what its next lists must not lack.

A client that knows nothing of tokens lists what it has changed a moment ago, and the index follows a moment later.
"""

from collections import deque
from collections.abc import Sequence

from api.compute.protocol.token import ChangeToken
from api.identity.caller import Caller
from cells.kinds.native.change_positions import Numbered
from cells.model import InstanceRow
from resources.clock import Clock

_MAX_NOTES = 10_000


class OwnChange:
    """A state of an instance that was handed out. position: where it is in the changelog, once that is known."""

    __slots__ = ("cell_uuid", "position", "token")

    def __init__(self, cell_uuid: str, token: ChangeToken) -> None:
        self.cell_uuid = cell_uuid
        self.token = token
        self.position: Numbered | None = None


class OwnChanges:
    """Remembers them for `kept_s` seconds, in the memory of this process (docs/decisions/0045).

    kept_s: no less than `search.staleness_limit_s`: whoever is asked after that has the change, or counts as stale.
    """

    def __init__(self, kept_s: float, clock: Clock) -> None:
        self._kept_us = round(kept_s * 1e6)
        self._clock = clock
        self._of_reader: dict[str, dict[str, OwnChange]] = {}
        self._ends: deque[tuple[int, str, OwnChange]] = deque()

    def note(self, caller: Caller, row: InstanceRow) -> None:
        """The answer to `caller` tells of `row`, an instance of a native cell, unless that is older than `kept_s`."""
        now = self._clock()
        self._forget_old(now)
        if now - max(row.record["updated_at"] or 0, row.record["created_at"] or 0) > self._kept_us:
            return
        changes = self._of_reader.setdefault(_reader(caller), {})
        known = changes.get(row.uuid)
        if known is not None and known.token.revision >= row.revision:
            return  # of requests that ran at the same time, this one was the older one, or only looked
        change = OwnChange(row.cell_uuid, ChangeToken.of(row))
        # To the end: the newest is what the index reaches last.
        changes.pop(row.uuid, None)
        changes[row.uuid] = change
        self._ends.append((now + self._kept_us, _reader(caller), change))

    def of(self, caller: Caller) -> Sequence[OwnChange]:
        """What the project of `caller` was told lately, the newest last."""
        if _reader(caller) not in self._of_reader:
            return ()
        self._forget_old(self._clock())
        return [*self._of_reader.get(_reader(caller), {}).values()]

    def forget(self, caller: Caller, change: OwnChange) -> None:
        """The index has it."""
        self._forget(_reader(caller), change)

    def _forget_old(self, now: int) -> None:
        while self._ends and (self._ends[0][0] < now or len(self._ends) > _MAX_NOTES):
            _, reader, change = self._ends.popleft()
            self._forget(reader, change)

    def _forget(self, reader: str, change: OwnChange) -> None:
        changes = self._of_reader.get(reader, {})
        uuid = change.token.instance_uuid
        # There may be a newer one of that instance.
        if changes.get(uuid) is change:
            del changes[uuid]
            if not changes:
                del self._of_reader[reader]


def _reader(caller: Caller) -> str:
    return caller.project_id or caller.user_id

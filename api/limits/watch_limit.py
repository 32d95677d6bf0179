"""Limits on streams of changes: of all processes of an API, of one user, and of one project."""

import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from mmap import mmap

from fleetlight.api.caller import Caller
from fleetlight.api.http.errors import TooManyOwnWatchesError, TooManyWatchesError
from fleetlight.api.limits.admission import WATCHES, RateLimit
from fleetlight.api.limits.shared_memory import SharedMemory

# A guess, since no slot has a known end.
_RETRY_AFTER_S = 10
_DIGEST_BYTES = 16
# A slot: its process, 0 for none, and digests of its user and its project, whose names may be long.
_SLOT = struct.Struct(f"=H{_DIGEST_BYTES}s{_DIGEST_BYTES}s")
_FREE = _SLOT.pack(0, b"", b"")


@dataclass(frozen=True, slots=True)
class WatchLimits:
    """Largest numbers of concurrent streams."""

    of_all: int
    per_user: int
    per_project: int


class WatchSlots:
    """The slots of streams, shared by this process and its forks."""

    def __init__(self, limits: WatchLimits) -> None:
        self._limits = limits
        self._memory = SharedMemory(limits.of_all * _SLOT.size)
        self._process = 1

    def begin(self, process: int) -> None:
        """Use slots as process number `process`, from 1 on; frees the slots of its predecessor."""
        self._process = process
        with self._memory.locked() as memory:
            for number in range(self._limits.of_all):
                if _SLOT.unpack_from(memory, number * _SLOT.size)[0] == process:
                    _free(memory, number)

    @contextmanager
    def take(self, caller: Caller) -> Iterator[RateLimit]:
        """Take a slot for `caller` in the block; yields how many its user has left.

        Raises TooManyOwnWatchesError, TooManyWatchesError.
        """
        number, left = self._taken(caller)
        try:
            yield RateLimit(WATCHES, self._limits.per_user, left)
        finally:
            with self._memory.locked() as memory:
                _free(memory, number)

    def _taken(self, caller: Caller) -> tuple[int, int]:
        """Take a slot for `caller`; returns its number, and how many more its user may have."""
        user = _digest("user", caller.user_id)
        project = _digest("project", caller.project_id)
        with self._memory.locked() as memory:
            end = self._limits.of_all * _SLOT.size
            slots = list(_SLOT.iter_unpack(memory[:end]))
            taken = Counter(holder for process, *holders in slots if process for holder in holders)
            if taken[user] >= self._limits.per_user:
                raise TooManyOwnWatchesError("user", self._limits.per_user, _RETRY_AFTER_S)
            if caller.project_id is not None and taken[project] >= self._limits.per_project:
                raise TooManyOwnWatchesError("project", self._limits.per_project, _RETRY_AFTER_S)
            number = next((number for number, (process, _, _) in enumerate(slots) if not process), None)
            if number is None:
                raise TooManyWatchesError(self._limits.of_all, _RETRY_AFTER_S)
            _SLOT.pack_into(memory, number * _SLOT.size, self._process, user, project)
            return number, self._limits.per_user - taken[user] - 1


def _free(memory: mmap, number: int) -> None:
    memory[number * _SLOT.size : (number + 1) * _SLOT.size] = _FREE


def _digest(kind: str, name: str | None) -> bytes:
    return blake2b(repr((kind, name)).encode(), digest_size=_DIGEST_BYTES).digest()

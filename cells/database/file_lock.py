"""A lock on a file, which dies with its process. Not in `locks`, since commands without a database import it too."""

import fcntl
import os
import time
from pathlib import Path

_PAUSE_S = 0.01
_LONGEST_NOTE = 1000


class FileLock:
    """A lock on a file (flock). It belongs to the open file, so it also separates two users within a process.

    Only one thread may use it. Calls raise OSError if the file cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def acquire(self, *, shared: bool = False) -> bool:
        """Take the lock, which this object must not hold. Returns False at once if another holder has it.

        shared: several holders may share it, but not with an exclusive one.
        """
        return self._locked((fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Take the lock as soon as it is free; returns False if another holder has it until `timeout_s` is over."""
        if timeout_s is None:
            return self._locked(fcntl.LOCK_EX)
        deadline = time.monotonic() + timeout_s
        while not self.acquire():
            if time.monotonic() >= deadline:
                return False
            time.sleep(_PAUSE_S)
        return True

    def write_note(self, note: str) -> None:
        """Write a text about the holder to the file. Raises ValueError if the lock is not held."""
        if self._descriptor is None:
            raise ValueError(f"nothing holds {self._path}")
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, note.encode()[:_LONGEST_NOTE], 0)

    def read_note(self) -> str:
        """The text that the last holder wrote; empty if there is none. Raises OSError."""
        try:
            return self._path.read_text(encoding="utf-8", errors="replace").strip()
        except FileNotFoundError:
            return ""

    def release(self) -> None:
        # The file stays, or else another holder could lock a new file of the same name.
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _locked(self, how: int) -> bool:
        # Readable by this user alone, since any account that can read the file can lock it.
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, how)
        except BaseException as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                return False
            raise
        self._descriptor = descriptor
        return True

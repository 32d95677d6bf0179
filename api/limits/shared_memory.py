"""Memory that the processes of an API share, made before they are forked."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from mmap import mmap
from pathlib import Path
from tempfile import mkstemp
from weakref import finalize


class SharedMemory:
    """`size` shared bytes, zero at first. In each process only one thread may use them, such as its event loop."""

    def __init__(self, size: int) -> None:
        self._content = mmap(-1, max(1, size))
        # A file only for its lock, which ends with the process that holds it; it has neither name nor content.
        self._file, path = mkstemp(prefix="fleetlight-")
        Path(path).unlink()
        finalize(self, os.close, self._file)

    @contextmanager
    def locked(self) -> Iterator[mmap]:
        """Lock the bytes in the block, and yield them. Keep the block short: the other processes' event loops wait."""
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            yield self._content
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)

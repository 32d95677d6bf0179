"""Memory that the processes of an API share: what was made before they were forked is one for all of them."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from mmap import mmap
from pathlib import Path
from tempfile import mkstemp
from weakref import finalize


class SharedMemory:
    """`size` bytes, all zero at first. Of each process one thread may use them, as its event loop does."""

    def __init__(self, size: int) -> None:
        self._content = mmap(-1, max(1, size))
        # Its lock ends with the process that holds it. The file has neither a name nor content.
        self._file, path = mkstemp(prefix="fleetlight-")
        Path(path).unlink()
        finalize(self, os.close, self._file)

    @contextmanager
    def locked(self) -> Iterator[mmap]:
        """The bytes, with no other process at them. To be left at once: others wait, with all that they do."""
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            yield self._content
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)

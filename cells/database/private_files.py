"""SQLite files that their owner alone may read and write, whatever the umask."""

import os
from contextlib import suppress
from pathlib import Path


def make_private(path: Path) -> None:
    """Make the file of a database that is not there yet; one that is there keeps its rights, and is not opened.

    A process that closes a file gives up the locks that SQLite holds on it (https://sqlite.org/howtocorrupt.html, 2.2).
    What SQLite lays beside a file (its log, its shared memory) gets the rights of the file. SQLite itself says what is
    wrong where no file can be made.
    """
    with suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

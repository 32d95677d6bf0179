"""The folder of an embedded fleet: what lies where, and the lock that keeps a second process out.

fleet.db      fleet database
cells/        one database per cell
index.db      search index
identity.json users, projects and roles, for this user alone
clouds.yaml   logins for clients, for this user alone
lock          held by the running `fleetlight up`; its text is the process id
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from cli.errors import CommandError

DEFAULT_DATA_DIR = Path("fleetlight-data")
_PAUSE_S = 0.1
_PRIVATE = 0o700


class DataFolder:
    """Paths inside the data folder `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    @property
    def exists(self) -> bool:
        """Whether a fleet was ever set up here."""
        return self.fleet_database.exists()

    @property
    def fleet_database(self) -> Path:
        return self.path / "fleet.db"

    @property
    def index_database(self) -> Path:
        return self.path / "index.db"

    @property
    def identity_file(self) -> Path:
        return self.path / "identity.json"

    @property
    def clouds_file(self) -> Path:
        return self.path / "clouds.yaml"

    def cell_database(self, name: str) -> Path:
        return self.path / "cells" / f"{name}.db"

    def create(self) -> None:
        """Make the folders, for this user alone; one that is there stays as it is.

        Raises CommandError when that is not possible.
        """
        try:
            self.path.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
            (self.path / "cells").mkdir(mode=_PRIVATE, exist_ok=True)
        except FileExistsError as error:
            raise CommandError(
                f"cannot create the data folder {self.path}: {error.filename} is not a folder"
            ) from error
        except OSError as error:
            raise CommandError(f"cannot create the data folder {self.path}: {error.strerror}") from error

    @contextmanager
    def locked(self, deadline_s: float = 5.0) -> Iterator[None]:
        """Keep every other process out; the system frees the lock when the process ends, however it ends.

        deadline_s: how long another process may need to end, which was told to just before.
        Raises CommandError, naming the process, when another one holds it, or when the folder cannot be written to.
        """
        # Opened for appending, so that a process that fails to get the lock leaves the holder's id in the file. A new
        # one is for this user alone: whoever can read a lock can hold it.
        lock = self.path / "lock"
        try:
            lock.touch(mode=0o600)
            opened = lock.open("a+", encoding="ascii")
        except OSError as error:
            raise CommandError(f"cannot write to the data folder {self.path}: {error.strerror}") from error
        with opened as file:
            if not _lock(file, deadline_s):
                file.seek(0)
                holder = file.read().strip() or "unknown"
                raise CommandError(
                    f"the data folder {self.path} is in use by process {holder}; "
                    "stop that process, or give another folder with --data-dir"
                )
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield


def _lock(file: IO[str], deadline_s: float) -> bool:
    """Whether the lock was free within `deadline_s`."""
    deadline = time.monotonic() + deadline_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_PAUSE_S)
        else:
            return True


def sqlite_url(path: Path) -> str:
    """The SQLAlchemy URL of a SQLite file."""
    return f"sqlite:///{path}"

"""The folder of an embedded fleet: its files, and the lock that keeps a second process out.

fleet.db      fleet database
cells/        one database per cell
index.db      search index
identity.json users, projects and roles, for this user alone
clouds.yaml   logins for clients, for this user alone
certificates/ with which agents of simulated hosts and their callers authenticate each other
agents/       a folder for each such agent
luxi.sock     socket at which the running `fleetlight up` answers Ganeti's local queries
lock          held by the running `fleetlight up`; its text is the process id
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fleetlight.cells.database.file_lock import FileLock
from fleetlight.cells.settings import FleetSettings
from fleetlight.cli.errors import CommandError

DEFAULT_DATA_DIR = Path("fleetlight-data")
_PRIVATE = 0o700


class DataFolder:
    """Paths inside the data folder `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    @property
    def exists(self) -> bool:
        """Whether a fleet was ever set up in this folder."""
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
    def watch_key(self) -> Path:
        return self.path / "watch-key"

    @property
    def clouds_file(self) -> Path:
        return self.path / "clouds.yaml"

    @property
    def luxi_socket(self) -> Path:
        return self.path / "luxi.sock"

    @property
    def certificates(self) -> Path:
        return self.path / "certificates"

    @property
    def agents(self) -> Path:
        return self.path / "agents"

    def cell_database(self, name: str) -> Path:
        return self.path / "cells" / f"{name}.db"

    def cell_databases(self) -> Sequence[Path]:
        return sorted((self.path / "cells").glob("*.db"))

    def create(self) -> None:
        """Create the folders, readable by this user alone; existing ones stay as they are.

        Raises CommandError if a folder cannot be created.
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
        """Hold the folder's lock. The system frees it when the process ends in any way.

        deadline_s: how long to wait for another process that was just told to stop.
        Raises CommandError if another process, which it names, holds the lock, or if the folder is not writable.
        """
        lock = FileLock(self.path / "lock")
        try:
            is_free = lock.wait(deadline_s)
        except OSError as error:
            raise CommandError(f"cannot write to the data folder {self.path}: {error.strerror}") from error
        if not is_free:
            raise CommandError(
                f"the data folder {self.path} is in use by process {lock.read_note() or 'unknown'}; "
                "stop that process, or give another folder with --data-dir"
            )
        lock.write_note(str(os.getpid()))
        try:
            yield
        finally:
            lock.release()


def sqlite_url(path: Path) -> str:
    """The SQLAlchemy URL of a SQLite file."""
    return f"sqlite:///{path}"


def is_in_data_folder(settings: FleetSettings, data_dir: Path | None) -> bool:
    """Whether the fleet is the one that `fleetlight up` runs in this data folder, or in the default one."""
    folder = DataFolder(data_dir or DEFAULT_DATA_DIR)
    return settings.database_url.get_secret_value() == sqlite_url(folder.fleet_database)

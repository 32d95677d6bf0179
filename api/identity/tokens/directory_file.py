"""The file of the directory, which several processes read while one of them changes it.

A change holds a lock and replaces the whole file, so that a reader sees the old or the new one. Clients can write only
a limited amount (`directory`), so the file stays small.
"""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkstemp

import msgspec

from fleetlight.api.http.errors import DirectoryUnavailableError
from fleetlight.api.identity.tokens.directory import Directory
from fleetlight.api.identity.watched_file import WatchedFile
from fleetlight.api.limits.fair_queue import FairQueue
from fleetlight.api.limits.login_limit import too_many_at_once
from fleetlight.cells.database.file_lock import FileLock

_MOST_WAITING = 128
_MOST_WAITING_OF_USER = 16


class DirectoryFile:
    """The directory in the file at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._watched = WatchedFile(path, self._parse)
        self._queue = FairQueue(
            1, most_waiting=_MOST_WAITING, most_in_flow=_MOST_WAITING_OF_USER, refusal=too_many_at_once
        )

    async def current(self) -> Directory:
        """Return the current directory. Raises DirectoryUnavailableError when it cannot be read."""
        return await self._watched.current()

    def read(self) -> Directory:
        """As `current`; blocks."""
        return self._watched.read()

    async def change_for(self, user_id: str, change: Callable[[Directory], Directory]) -> Directory:
        """As `change`, for a request of a user, in a thread: one change at a time, users taking turns.

        Also raises TooManyLoginsError when too many requests wait.
        """
        async with self._queue.lock(user_id):
            return await asyncio.to_thread(self.change, change)

    def change(self, change: Callable[[Directory], Directory], *, create: bool = False) -> Directory:
        """Replace the directory by the result of `change`, while no other process changes it. Blocks.

        create: begin with an empty directory if there is no file.
        Raises the errors of `change`, which leave the file unchanged, and DirectoryUnavailableError.
        """
        with self._locked():
            changed = change(Directory.empty() if create and not self.path.exists() else self._watched.load())
            self._write(changed)
        return changed

    def _parse(self, content: bytes) -> Directory:
        try:
            return msgspec.json.decode(content, type=Directory)
        except msgspec.MsgspecError as error:
            raise DirectoryUnavailableError(self.path, f"it is no directory of identities: {error}") from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep every other writer out; the system frees the lock at the end of the process."""
        path = self.path.with_name(self.path.name + ".lock")
        lock = FileLock(path)
        try:
            lock.wait()
            _give_to_owner_of(self.path, path)
        except OSError as error:
            lock.release()
            raise DirectoryUnavailableError(path, error.strerror or str(error)) from error
        try:
            yield
        finally:
            lock.release()

    def _write(self, directory: Directory) -> None:
        content = msgspec.json.format(msgspec.json.encode(directory), indent=2)
        try:
            # mkstemp makes a file that only this user can read.
            descriptor, name = mkstemp(prefix=self.path.name + ".", dir=self.path.parent)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    _give_to_owner_of(self.path, descriptor)
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                    status = os.fstat(file.fileno())
                os.replace(name, self.path)
                self._watched.is_now(status, directory)
            except BaseException:
                os.unlink(name)
                raise
            _sync(self.path.parent)
        except OSError as error:
            raise DirectoryUnavailableError(self.path, error.strerror or str(error)) from error


def _give_to_owner_of(path: Path, file: Path | int) -> None:
    """Give a file the owner of the file at `path`, so that a change by root does not lock the service out."""
    if os.geteuid() == 0 and path.exists():
        owner = path.stat()
        os.chown(file, owner.st_uid, owner.st_gid)


def _sync(folder: Path) -> None:
    """Sync a folder, so that the new name of a file survives a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

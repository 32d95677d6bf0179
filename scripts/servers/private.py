"""A server for one test alone, which may do to it what it may not do to a shared one: kill it, and start it again."""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from scripts.servers import process
from scripts.servers.base import Server
from scripts.servers.errors import ServerError, StartError
from scripts.servers.folders import make_folder, state_folder

_PAUSE_S = 0.5


class PrivateServer:
    """A server from local packages, on a free port, with a folder of its own; `private_server` makes one."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._server = server
        self.folder = folder
        self.port = process.free_port()
        self._process: process.Process | None = None
        self._was_killed = False
        server.set_up(folder, self.port)

    @property
    def url(self) -> str:
        return self._server.url(self.port)

    @property
    def pid(self) -> int:
        """Of its first process. Raises ServerError when it is not started."""
        if self._process is None:
            raise ServerError(self._server.NAME, "it is not started")
        return self._process.pid

    def start(self) -> None:
        """Start it, also after it was killed; returns when it answers. Raises ServerError."""
        deadline = time.monotonic() + self._server.READY_WITHIN_S
        while True:
            self._process = self._server.launch(self.folder, self.port)
            remaining_s = max(1.0, deadline - time.monotonic())
            try:
                process.wait_until_ready(
                    self._server.NAME,
                    self._process,
                    lambda: self._server.is_ready(self.port),
                    self.folder,
                    remaining_s,
                )
            except StartError:
                # PostgreSQL refuses to start while children of the killed one are still there.
                if not self._was_killed or time.monotonic() > deadline:
                    raise
                self._end(signal.SIGKILL)
                time.sleep(_PAUSE_S)
            else:
                return

    def kill(self) -> None:
        """SIGKILL to all of it; what it had not written to its files is gone."""
        self._end(signal.SIGKILL)
        self._was_killed = True

    def stop(self) -> None:
        """Ask it to end, and wait until it has."""
        self._end(self._server.STOP_SIGNAL)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            process.stop(self._server.NAME, self._process, how)
            # It is our child: until its exit status is read, PostgreSQL takes it for alive.
            with suppress(ChildProcessError):
                os.waitpid(self._process.pid, 0)
            self._server.clean_up(self.folder)
            self._process = None


@contextmanager
def private_server(server: Server) -> Iterator[PrivateServer]:
    """A started server, removed with its data at the end. Raises ServerError."""
    make_folder(state_folder())
    folder = Path(tempfile.mkdtemp(dir=state_folder(), prefix=f"private-{server.NAME}-"))
    try:
        process.hand_over(folder)
        private = PrivateServer(server, folder)
        try:
            private.start()
            yield private
        finally:
            private.kill()
    finally:
        shutil.rmtree(folder)

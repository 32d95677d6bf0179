"""Redis from the Debian package `redis-server`, or Valkey from `valkey-server`."""

import shutil
import signal
import socket
from pathlib import Path
from typing import ClassVar

from scripts.servers import process
from scripts.servers.errors import NotInstalledError


class Redis:
    NAME: ClassVar[str] = "redis"
    VARIABLE: ClassVar[str] = "FLEETLIGHT_TEST_REDIS_URL"
    # Nothing that docker-compose.yml starts needs it.
    CONTAINER_PORT: ClassVar[int | None] = None
    READY_WITHIN_S: ClassVar[float] = 30
    STOP_SIGNAL: ClassVar[signal.Signals] = signal.SIGTERM
    # When it writes to its files.
    _SAVING: ClassVar[tuple[str, ...]] = ("--save", "", "--appendonly", "no")

    def url(self, port: int) -> str:
        return f"redis://127.0.0.1:{port}/0"

    def is_ready(self, port: int) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(7) == b"+PONG\r\n"
        except OSError:
            return False

    def set_up(self, folder: Path, port: int) -> None:
        process.hand_over(folder)

    def launch(self, folder: Path, port: int) -> process.Process:
        options = ("--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), *self._SAVING)
        return process.spawn(self.NAME, [_program(), *options], {}, folder)

    def clean_up(self, folder: Path) -> None:
        """Nothing runs outside the server's session."""


class DurableRedis(Redis):
    """One that tests end and kill: what was written is there when it starts again."""

    _SAVING: ClassVar[tuple[str, ...]] = ("--save", "", "--appendonly", "yes", "--appendfsync", "no")


def _program() -> str:
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    if found is None:
        raise NotInstalledError(Redis.NAME, "redis-server", "On Debian: apt-get install redis-server")
    return found

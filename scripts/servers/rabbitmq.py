"""RabbitMQ from the Debian package `rabbitmq-server`, with an epmd (Erlang's name server) of its own."""

import contextlib
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import ClassVar

from scripts.servers import process
from scripts.servers.errors import NotInstalledError

_DEBIAN_PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
_METHOD_FRAME = 1


class RabbitMQ:
    NAME: ClassVar[str] = "rabbitmq"
    VARIABLE: ClassVar[str] = "FLEETLIGHT_TEST_AMQP_URL"
    CONTAINER_PORT: ClassVar[int] = 5672
    READY_WITHIN_S: ClassVar[float] = 90
    STOP_SIGNAL: ClassVar[signal.Signals] = signal.SIGTERM

    def url(self, port: int) -> str:
        return f"amqp://guest:guest@127.0.0.1:{port}//"

    def is_ready(self, port: int) -> bool:
        """The broker answers AMQP 0-9-1's protocol header with a method frame (connection.start)."""
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
                connection.sendall(_PROTOCOL_HEADER)
                return connection.recv(1) == bytes([_METHOD_FRAME])
        except OSError:
            return False

    def launch(self, folder: Path, port: int) -> process.Process:
        program = _program()
        epmd_port = process.free_port()
        (folder / "epmd.port").write_text(str(epmd_port))
        (folder / "enabled_plugins").write_text("[].\n")
        (folder / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\n")
        process.hand_over(folder)
        environment = {
            # The node's name needs to be unique only within its own epmd.
            "RABBITMQ_NODENAME": "fleetlight@localhost",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(process.free_port()),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "logs"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(epmd_port),
        }
        return process.spawn(self.NAME, [program], environment, folder)

    def clean_up(self, folder: Path) -> None:
        """Erlang starts epmd as a daemon, which stays when the node has ended."""
        port = folder / "epmd.port"
        epmd = shutil.which("epmd")
        if epmd is not None and port.exists():
            command = [epmd, "-port", port.read_text(), "-kill"]
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run(command, check=False, capture_output=True, timeout=10)


def _program() -> str:
    # What Debian puts on the PATH is a wrapper that changes to the account `rabbitmq`.
    found = str(_DEBIAN_PROGRAM) if _DEBIAN_PROGRAM.exists() else shutil.which("rabbitmq-server")
    if found is None:
        raise NotInstalledError(RabbitMQ.NAME, "rabbitmq-server", "On Debian: apt-get install rabbitmq-server")
    return found

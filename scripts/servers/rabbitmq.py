"""RabbitMQ from the Debian package `rabbitmq-server`, with an epmd (Erlang's name server) of its own."""

import contextlib
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import ClassVar

from scripts.servers import process
from scripts.servers.base import ADMINISTRATOR, ADMINISTRATORS_PASSWORD
from scripts.servers.certificates import CA_FILE, CERTIFICATE_FILE, KEY_FILE, make_certificates, unchecked_tls
from scripts.servers.errors import NotInstalledError

_DEBIAN_PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
_METHOD_FRAME = 1
_EPMD_PORT, _MANAGEMENT_PORT = "epmd.port", "management.port"


class RabbitMQ:
    NAME: ClassVar[str] = "rabbitmq"
    VARIABLE: ClassVar[str] = "FLEETLIGHT_TEST_AMQP_URL"
    CONTAINER_PORT: ClassVar[int | None] = 5672
    READY_WITHIN_S: ClassVar[float] = 90
    STOP_SIGNAL: ClassVar[signal.Signals] = signal.SIGTERM
    _PLUGINS: ClassVar[tuple[str, ...]] = ()

    def url(self, port: int) -> str:
        return f"amqp://guest:guest@127.0.0.1:{port}//"

    def is_ready(self, port: int) -> bool:
        """The broker answers AMQP 0-9-1's protocol header with a method frame (connection.start)."""
        try:
            with self._connected(port) as connection:
                connection.sendall(_PROTOCOL_HEADER)
                return connection.recv(1) == bytes([_METHOD_FRAME])
        except OSError:
            return False

    def set_up(self, folder: Path, port: int) -> None:
        (folder / _EPMD_PORT).write_text(str(process.free_port()))
        (folder / "enabled_plugins").write_text(f"[{','.join(self._PLUGINS)}].\n")
        (folder / "rabbitmq.conf").write_text("".join(f"{line}\n" for line in self._configuration(folder, port)))
        process.hand_over(folder)

    def launch(self, folder: Path, port: int) -> process.Process:
        environment = node_environment(folder) | {
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(process.free_port()),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "logs"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        }
        return process.spawn(self.NAME, [_program()], environment, folder)

    def clean_up(self, folder: Path) -> None:
        """Erlang starts epmd as a daemon, which stays when the node has ended."""
        port = folder / _EPMD_PORT
        epmd = shutil.which("epmd")
        if epmd is not None and port.exists():
            command = [epmd, "-port", port.read_text(), "-kill"]
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run(command, check=False, capture_output=True, timeout=10)

    def _connected(self, port: int) -> socket.socket:
        return socket.create_connection(("127.0.0.1", port), timeout=2)

    def _configuration(self, folder: Path, port: int) -> list[str]:
        return [f"listeners.tcp.1 = 127.0.0.1:{port}"]


class SecuredRabbitMQ(RabbitMQ):
    """Speaks AMQP over TLS alone, and has its management API, over TLS too, at `management_port`."""

    NAME: ClassVar[str] = "rabbitmq-secured"
    VARIABLE: ClassVar[str] = "FLEETLIGHT_TEST_SECURED_AMQP_URL"
    CONTAINER_PORT: ClassVar[int | None] = None
    _PLUGINS: ClassVar[tuple[str, ...]] = ("rabbitmq_management",)

    def url(self, port: int) -> str:
        return f"amqps://{ADMINISTRATOR}:{ADMINISTRATORS_PASSWORD}@127.0.0.1:{port}//"

    def _connected(self, port: int) -> socket.socket:
        return unchecked_tls().wrap_socket(super()._connected(port))

    def _configuration(self, folder: Path, port: int) -> list[str]:
        make_certificates(self.NAME, folder)
        (folder / _MANAGEMENT_PORT).write_text(str(process.free_port()))
        files = {"cacertfile": CA_FILE, "certfile": CERTIFICATE_FILE, "keyfile": KEY_FILE}
        return [
            "listeners.tcp = none",
            f"listeners.ssl.1 = 127.0.0.1:{port}",
            *(f"ssl_options.{option} = {folder / name}" for option, name in files.items()),
            "management.ssl.ip = 127.0.0.1",
            f"management.ssl.port = {management_port(folder)}",
            *(f"management.ssl.{option} = {folder / name}" for option, name in files.items()),
            f"default_user = {ADMINISTRATOR}",
            f"default_pass = {ADMINISTRATORS_PASSWORD}",
        ]


def management_port(folder: Path) -> int:
    """Where the SecuredRabbitMQ of `folder` has its management API."""
    return int((folder / _MANAGEMENT_PORT).read_text())


def node_environment(folder: Path) -> dict[str, str]:
    """What tells the programs of RabbitMQ which node is meant."""
    return {
        # The node's name needs to be unique only within its own epmd.
        "RABBITMQ_NODENAME": "fleetlight@localhost",
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": (folder / _EPMD_PORT).read_text(),
    }


def _program() -> str:
    # What Debian puts on the PATH is a wrapper that changes to the account `rabbitmq`.
    found = str(_DEBIAN_PROGRAM) if _DEBIAN_PROGRAM.exists() else shutil.which("rabbitmq-server")
    if found is None:
        raise NotInstalledError(RabbitMQ.NAME, "rabbitmq-server", "On Debian: apt-get install rabbitmq-server")
    return found

"""What the three servers have in common."""

import signal
from pathlib import Path
from typing import ClassVar, Protocol

from scripts.servers.process import Process

ADMINISTRATOR, ADMINISTRATORS_PASSWORD = "administrator", "fleetlight-test"
"""The account at servers that ask for one: they listen on the loopback address, and their data is thrown away."""


class Server(Protocol):
    """One kind of server: how to run it from local packages, and how to see that it answers."""

    NAME: ClassVar[str]
    """Its word on the command line, and its service in docker-compose.yml."""
    VARIABLE: ClassVar[str]
    """The environment variable that tests read its URL from."""
    CONTAINER_PORT: ClassVar[int | None]
    """The port of its service in docker-compose.yml; None for one that is always taken from local packages."""
    READY_WITHIN_S: ClassVar[float]
    STOP_SIGNAL: ClassVar[signal.Signals]

    def url(self, port: int) -> str:
        """URL of the server that listens on `port` of the loopback address."""
        ...

    def is_ready(self, port: int) -> bool:
        """Whether the server on `port` of the loopback address answers in its own protocol."""
        ...

    def set_up(self, folder: Path, port: int) -> None:
        """Make data and configuration for `port` in `folder`, which is empty and owned by the servers' user.

        Raises NotInstalledError naming what to install, and StartError.
        """
        ...

    def launch(self, folder: Path, port: int) -> Process:
        """Start the server on what `set_up` made, also again after it has ended.

        Raises NotInstalledError naming what to install, and StartError if it fails at once.
        """
        ...

    def clean_up(self, folder: Path) -> None:
        """End what the server left running outside its session; called after it was stopped."""
        ...

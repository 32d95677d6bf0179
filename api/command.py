"""What an API process has to know of the command that it is a part of, where that has several processes."""

from typing import Protocol

from fleetlight.indexer.stream.liveness import Probes


class Command(Probes, Protocol):
    """All processes of the command, the one that asks among them. Calls block; a process that hangs takes its time.

    healthz, readyz: of all of them, as one.
    """

    def reset_safe_connect(self) -> None:
        """Let the lists of each process use the index again. One that hangs has its flag no more when it has ended."""

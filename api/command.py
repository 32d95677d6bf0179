"""The command of several processes that an API process belongs to, as that process sees it."""

from typing import Protocol

from fleetlight.indexer.stream.liveness import Probes


class Command(Probes, Protocol):
    """All processes of the command, including the calling one. Calls block, for longer if a process hangs.

    healthz, readyz: the state of all processes as one.
    """

    def reset_safe_connect(self) -> None:
        """Have the lists of each process use the index again. A process that hangs loses its flag when it ends."""

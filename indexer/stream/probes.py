"""`/healthz` and `/readyz` of an indexer: whether its threads work, and whether the index takes their writes.

The answers name what is wrong; only the log says why, since these addresses answer every caller.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fleetlight.indexer.stream.liveness import ALIVE, Probe
from fleetlight.indexer.stream.service import IndexerService


def never() -> bool:
    """For an indexer without a sealer."""
    return False


class IndexerProbes:
    """The probes of one process, which is alive and not ready until it has built its indexer."""

    def __init__(self) -> None:
        self._service: IndexerService | None = None
        self._is_suspected = never

    @contextmanager
    def watching(self, service: IndexerService, is_suspected: Callable[[], bool] = never) -> Iterator[None]:
        """Answer for this indexer inside the context; outside it, the process waits for a restart, and is alive.

        is_suspected: whether another program wrote to the index, and the repair has not ended yet.
        """
        self._service, self._is_suspected = service, is_suspected
        try:
            yield
        finally:
            self._service = None

    def healthz(self) -> Probe:
        """Not alive if a thread has work and makes no progress; a thread that waits for a server is alive."""
        service = self._service
        if service is None or not (stuck := service.stuck):
            return ALIVE
        cells = sorted(name for name in stuck if name)
        return Probe(False, {"status": "stuck", "cells": cells})

    def readyz(self) -> Probe:
        """Ready if the index takes writes; degraded if a cell is not followed, or the index is suspected."""
        service = self._service
        is_ready = service is not None and service.is_ready
        cells = {} if service is None else service.cell_states
        is_suspected = is_ready and self._is_suspected()
        is_well = not is_suspected and all(state == "following" for state in cells.values())
        status = "unavailable" if not is_ready else "ready" if is_well else "degraded"
        index = "down" if not is_ready else "suspected" if is_suspected else "ok"
        return Probe(is_ready, {"status": status, "index": index, "cells": cells})

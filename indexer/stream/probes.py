"""`/healthz` and `/readyz` of an indexer: whether its work gets done, and whether the index takes it.

What is wrong is named, why is in the log: these addresses answer every caller.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fleetlight.indexer.stream.liveness import ALIVE, Probe
from fleetlight.indexer.stream.service import IndexerService


def never() -> bool:
    """Of an indexer without a sealer."""
    return False


class IndexerProbes:
    """The probes of one process; it is alive, and not ready, until its indexer has been made."""

    def __init__(self) -> None:
        self._service: IndexerService | None = None
        self._is_suspected = never

    @contextmanager
    def watching(self, service: IndexerService, is_suspected: Callable[[], bool] = never) -> Iterator[None]:
        """While it runs; one that has failed and is to be started again waits for something, and is alive.

        is_suspected: whether another program has written to the index, and it is not compared with the cells yet.
        """
        self._service, self._is_suspected = service, is_suspected
        try:
            yield
        finally:
            self._service = None

    def healthz(self) -> Probe:
        """Not alive when there is work and none of it gets done; waiting for what is away is alive."""
        service = self._service
        if service is None or not (stuck := service.stuck):
            return ALIVE
        cells = sorted(name for name in stuck if name)
        return Probe(False, {"status": "stuck", "cells": cells})

    def readyz(self) -> Probe:
        """Ready when the index takes what comes.

        Cells that are waited for make it degraded, and name themselves; so does an index that is suspected.
        """
        service = self._service
        is_ready = service is not None and service.is_ready
        cells = {} if service is None else service.cell_states
        is_suspected = is_ready and self._is_suspected()
        is_well = not is_suspected and all(state == "following" for state in cells.values())
        status = "unavailable" if not is_ready else "ready" if is_well else "degraded"
        index = "down" if not is_ready else "suspected" if is_suspected else "ok"
        return Probe(is_ready, {"status": status, "index": index, "cells": cells})

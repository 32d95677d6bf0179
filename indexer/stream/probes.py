"""`/healthz` and `/readyz` of an indexer: whether its work gets done, and whether the index takes it.

What is wrong is named, why is in the log: these addresses answer every caller.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from fleetlight.indexer.stream.liveness import ALIVE, Probe
from fleetlight.indexer.stream.service import IndexerService


class IndexerProbes:
    """The probes of one process; it is alive, and not ready, until its indexer has been made."""

    def __init__(self) -> None:
        self._service: IndexerService | None = None

    @contextmanager
    def watching(self, service: IndexerService) -> Iterator[None]:
        """While it runs; one that has failed and is to be started again waits for something, and is alive."""
        self._service = service
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
        """Ready when the index takes what comes; cells that are waited for make it degraded, and name themselves."""
        service = self._service
        is_ready = service is not None and service.is_ready
        cells = {} if service is None else service.cell_states
        status = "ready" if all(state == "following" for state in cells.values()) else "degraded"
        return Probe(
            is_ready,
            {"status": status if is_ready else "unavailable", "index": "ok" if is_ready else "down", "cells": cells},
        )

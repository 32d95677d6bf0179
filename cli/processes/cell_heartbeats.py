"""Liveness of the threads that run for each cell, for the `/healthz` of relays and workers."""

from collections.abc import Iterator
from contextlib import contextmanager

from fleetlight.cells.model import Cell
from fleetlight.indexer.stream.liveness import ALIVE, Probe, SignOfLife

# Much longer than a relay or worker waits in one step, for example for a broker's confirms.
_TIMEOUT_S = 180.0


class CellHeartbeats:
    """The heartbeats of the cells' threads, which are also the probes of the process
    (fleetlight.indexer.stream.liveness).
    """

    def __init__(self, timeout_s: float = _TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._heartbeats: dict[Cell, SignOfLife] = {}

    @contextmanager
    def of(self, cell: Cell) -> Iterator[SignOfLife]:
        """A heartbeat that counts during the block."""
        heartbeat = self._heartbeats[cell] = SignOfLife()
        try:
            yield heartbeat
        finally:
            del self._heartbeats[cell]

    def healthz(self) -> Probe:
        stuck = sorted(
            cell.name for cell, heartbeat in list(self._heartbeats.items()) if heartbeat.silent_s > self._timeout_s
        )
        return Probe(False, {"status": "stuck", "cells": stuck}) if stuck else ALIVE

    def readyz(self) -> Probe:
        """Always ready: such a process takes no requests."""
        return ALIVE

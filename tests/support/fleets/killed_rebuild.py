"""A rebuild that is killed: `python -m tests.support.fleets.killed_rebuild FLEET_URL INDEX_SETTINGS MOMENT`."""

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NoReturn

from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.model import Cell
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.reconcile.rebuild import RebuildPhase, rebuild_index
from tests.support.fleets.rebuilding import open_parts


class Moment(StrEnum):
    """When it happens."""

    FILLING = "filling"
    VERIFYING = "verifying"
    WRITING_IS_PAUSED = "writing is paused"


@dataclass
class _Killer:
    """Looks on, and ends it."""

    fleet: Fleet
    moment: Moment
    phase: RebuildPhase = RebuildPhase.FILLING

    def on_step(self) -> None:
        if (self.moment, self.phase) == (Moment.VERIFYING, RebuildPhase.VERIFYING):
            _die()

    def on_phase(self, phase: RebuildPhase) -> None:
        self.phase = phase

    def on_rows(self, _cell: Cell, rows: int) -> None:
        if rows and self.moment is Moment.FILLING:
            _die()

    def on_notice(self, text: str) -> None:
        sys.stderr.write(f"{text}\n")

    def cells(self) -> Sequence[Cell]:
        # The last time that anybody asks is at the end of the pause.
        if (self.moment, self.phase) == (Moment.WRITING_IS_PAUSED, RebuildPhase.SWITCHING):
            _die()
        return self.fleet.cells()


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("nobody survives that")


def main(fleet_url: str, index: str, moment: str) -> None:
    settings = IndexSettings.model_validate_json(index)
    fleet = Fleet(create_database_engine(fleet_url))
    killer = _Killer(fleet, Moment(moment))
    with open_parts(settings, fleet, cells=killer.cells) as parts:
        rebuild_index(parts, killer, back=False)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Ordered work whose indexer is killed: `python -m tests.support.fleets.killed_work FLEET_URL INDEX_SETTINGS`."""

import os
import signal
import sys
from threading import Event

from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.settings import FleetSettings
from fleetlight.cli.index.orders import OrderedWork
from fleetlight.cli.index.recorded_work import Progress
from fleetlight.cli.settings import Settings
from fleetlight.indexer.backends.settings import IndexSettings


def ordered_work(fleet: Fleet, fleet_url: str, index: IndexSettings) -> OrderedWork:
    """What an indexer has of this fleet and index."""
    settings = Settings(fleet=FleetSettings.model_validate({"database_url": fleet_url}), index=index)
    return OrderedWork(settings, fleet)


def _die(_progress: Progress, _cell: str, _done: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(fleet_url: str, index: str) -> None:
    Progress.show = _die  # type: ignore[assignment, method-assign]
    fleet = Fleet(create_database_engine(fleet_url))
    ordered_work(fleet, fleet_url, IndexSettings.model_validate_json(index)).run(Event())


if __name__ == "__main__":
    main(*sys.argv[1:])

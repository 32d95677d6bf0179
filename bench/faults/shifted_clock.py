"""The clock of a process of its own, turned while it runs, as NTP, or the resuming of a machine, sets it."""

import os
from collections.abc import Mapping
from pathlib import Path


class ShiftedClock:
    """The clock of processes that are started with `environment`. file: where they read how far it is turned."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.shift(0)

    @property
    def environment(self) -> Mapping[str, str]:
        folders = [str(Path(__file__).parent / "shifting"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        return {"PYTHONPATH": os.pathsep.join(filter(None, folders)), "TURNED_CLOCK_FILE": str(self._file)}

    def shift(self, seconds: int) -> None:
        """By so many seconds from what it is."""
        beside = self._file.with_suffix(".new")
        beside.write_text(str(seconds))
        beside.replace(self._file)

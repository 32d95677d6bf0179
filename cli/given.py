"""Marks parameters of commands that are opened from the configuration and not typed.

A command declares what it needs as a parameter (`fleet: OpenFleet`). In its place the command line has --config and
--data-dir, which select the fleet (`fleetlight.cli.groups.with_what_it_declares`).
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetlight.cli.settings import Settings


@dataclass(frozen=True, slots=True)
class FromSettings:
    """In the annotation of a parameter: its value is opened from the settings, and closed when the command ends.

    open: takes the settings, and the data folder given by --data-dir.
    """

    open: "Callable[[Settings, Path | None], AbstractContextManager[object]]"

"""What a command is given of the configuration, beside what a person types.

A command declares what it works with as a parameter (`fleet: OpenFleet`). In its place the command line has --config
and --data-dir, which say of which fleet (`fleetlight.cli.groups.with_what_it_declares`).
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
    """Marks a parameter, in its annotation, as what is opened of the settings, and closed when the command ends.

    open: takes the settings, and the data folder that was named.
    """

    open: "Callable[[Settings, Path | None], AbstractContextManager[object]]"

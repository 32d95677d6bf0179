"""Wings: products beside the index, which finds installed ones at run time, and imports none statically."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

_PACKAGES = ("fleetlight.manager",)


@dataclass(frozen=True, slots=True)
class Wing:
    """The description of a wing, which its package in `_PACKAGES` has as `WING`.

    commands: the module of each command (fleetlight.cli.app) and its purpose, by name.
    faces: the module with the faces of an application, and the callers of agents (fleetlight.api.wing).
    cells: the module whose `add_to` adds commands to `fleetlight cell`.
    """

    commands: Mapping[str, tuple[str, str]]
    faces: str
    cells: str


def wings() -> Sequence[Wing]:
    """The installed wings."""
    return [import_module(name).WING for name in _PACKAGES if find_spec(name) is not None]

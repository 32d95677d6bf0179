"""Wings: products beside the index, which finds them where they are installed, and imports none of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

_PACKAGES = ("fleetlight.manager",)


@dataclass(frozen=True, slots=True)
class Wing:
    """What a package of `_PACKAGES` has as `WING`.

    commands: by its name the module of each (fleetlight.cli.app), and what it is for.
    faces: the module that has what fleetlight.api.wing asks for: the faces of an application, and what calls agents.
    cells: the module whose `add_to` adds to the commands of `fleetlight cell`.
    """

    commands: Mapping[str, tuple[str, str]]
    faces: str
    cells: str


def wings() -> Sequence[Wing]:
    """Those that are installed."""
    return [import_module(name).WING for name in _PACKAGES if find_spec(name) is not None]

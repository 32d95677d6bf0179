"""Build hook of hatchling: folders at the top of the repository are imported as `fleetlight.FOLDER`.

A wheel holds the folders below `fleetlight/`. An editable install gets links to them in `.editable/fleetlight/`, so
that a new file is seen at once, by Python as well as by editors and mypy. hatchling's own `sources` cannot do that: it
refuses an editable install that adds a prefix.

Wheels and sdists hold the console's assets, which git does not have: those who install them need no Node.
"""

import shutil
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_IMPORT_NAME = "fleetlight"
_EDITABLE = Path(".editable")
_ASSETS = "api/console/static"


class ImportNameHook(BuildHookInterface[Any]):
    """Config `folders`: the folders at the top of the repository that a wheel holds."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Say where the files come from. version: "editable", or "standard".

        Raises FileNotFoundError if a standard wheel or an sdist would have no console.
        """
        if version == "editable":
            self._link(self.config["folders"])
            return
        if not Path(self.root, _ASSETS, "index.html").is_file():
            raise FileNotFoundError(f"The console is not built: {_ASSETS}/index.html is missing. Run scripts/console.")
        if self.target_name == "sdist":
            build_data["force_include"][_ASSETS] = _ASSETS
        else:
            folders: list[str] = self.config["folders"]
            build_data["force_include"] |= {folder: f"{_IMPORT_NAME}/{folder}" for folder in folders}

    def _link(self, folders: list[str]) -> None:
        package = Path(self.root) / _EDITABLE / _IMPORT_NAME
        shutil.rmtree(package, ignore_errors=True)
        package.mkdir(parents=True)
        for folder in folders:
            (package / folder).symlink_to(Path("..", "..", folder), target_is_directory=True)

"""The folders of the product, from the one list that there is: that of the wheel in pyproject.toml."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
PROJECT: Mapping[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS: Sequence[str] = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["folders"]
FOR_DEVELOPERS: Sequence[str] = ("bench", "scripts", "tests")

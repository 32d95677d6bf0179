"""The longest path of a unix socket."""

import os
from pathlib import Path

LONGEST_PATH = 107
"""Bytes; a limit of the system (unix(7))."""


def is_short_enough(path: Path) -> bool:
    return len(os.fsencode(path)) <= LONGEST_PATH

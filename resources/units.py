"""Numbers of one unit in another, and how far numbers go."""

from typing import Final

BYTES_PER_MIB: Final = 1024 * 1024
MIB_PER_GIB: Final = 1024
MICROSECONDS_PER_SECOND: Final = 1_000_000
MICROSECONDS_PER_HOUR: Final = 3600 * MICROSECONDS_PER_SECOND
MIB_IN: Final = {"m": 1, "g": MIB_PER_GIB, "t": MIB_PER_GIB * MIB_PER_GIB}
"""By the letters that sizes end with."""
MOST_EXACT: Final = 2**53
"""Up to here a number with a point, as readers of JSON keep all numbers, holds each whole one."""

"""Numbers of one unit in another."""

from typing import Final

BYTES_PER_MIB: Final = 1024 * 1024
MIB_PER_GIB: Final = 1024
MICROSECONDS_PER_SECOND: Final = 1_000_000
MICROSECONDS_PER_HOUR: Final = 3600 * MICROSECONDS_PER_SECOND

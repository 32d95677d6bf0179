"""Factors between units, and the largest exact number."""

from typing import Final

BYTES_PER_MIB: Final = 1024 * 1024
MIB_PER_GIB: Final = 1024
MICROSECONDS_PER_SECOND: Final = 1_000_000
MICROSECONDS_PER_HOUR: Final = 3600 * MICROSECONDS_PER_SECOND
MIB_IN: Final = {"m": 1, "g": MIB_PER_GIB, "t": MIB_PER_GIB * MIB_PER_GIB}
"""The factors of sizes by their suffix."""
MOST_EXACT: Final = 2**53
"""A float, which readers of JSON use for all numbers, represents every integer up to this one."""

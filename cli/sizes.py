"""Sizes on the command line, all in one form: `512M`, `4G`, `2T`."""

from typing import Any

import typer

from fleetlight.resources.units import MIB_PER_GIB

_MIB_IN = {"T": MIB_PER_GIB * MIB_PER_GIB, "G": MIB_PER_GIB, "M": 1}
# The largest value of a database column.
_MOST_MIB = 2**31 - 1


def size_option(help_text: str, *, parser: Any = None, **attributes: Any) -> Any:
    """An option that takes a size; its value is in MiB unless another parser is given."""
    return typer.Option(metavar="SIZE", parser=parser or size_mib, help=f"{help_text}, as 512M or 4G.", **attributes)


def size_mib(text: str) -> int:
    """Parse a size greater than zero to MiB. Raises typer.BadParameter."""
    mebibytes = size_from_zero_mib(text)
    if not mebibytes:
        raise typer.BadParameter(f"'{text}' is nothing")
    return mebibytes


def size_from_zero_mib(text: str) -> int:
    """Parse a size, which may be zero, to MiB. Raises typer.BadParameter."""
    number, unit = text[:-1], text[-1:].upper()
    if not (number.isascii() and number.isdigit()) or unit not in _MIB_IN:
        raise typer.BadParameter(f"'{text}' is no size such as 512M, 4G or 2T")
    # The digits are counted first, since Python refuses to parse thousands of them.
    mebibytes = int(number) * _MIB_IN[unit] if len(number) < len(str(_MOST_MIB)) + 1 else _MOST_MIB + 1
    if mebibytes > _MOST_MIB:
        raise typer.BadParameter(f"'{text}' is more than {size_text(_MOST_MIB)}")
    return mebibytes


def disk_gib(text: str) -> int:
    """Parse the size of a disk to whole GiB, in which hosts count. Raises typer.BadParameter."""
    gibibytes, rest = divmod(size_from_zero_mib(text), MIB_PER_GIB)
    if rest:
        raise typer.BadParameter(f"'{text}' is no whole number of G, in which hosts count their disks")
    return gibibytes


def size_text(mebibytes: int) -> str:
    """Format a size as it can be typed: exact, in the largest unit that gives a whole number."""
    unit = next(unit for unit, mib in _MIB_IN.items() if (mebibytes and not mebibytes % mib) or mib == 1)
    return f"{mebibytes // _MIB_IN[unit]}{unit}"

"""Nice order as the tests understand it: what a name is made of, number by number and text by text."""

import re


def parts(name: str) -> list[tuple[int, int, str]]:
    """What compares as names do in nice order."""
    return [
        (0, int(part), "") if re.fullmatch("[0-9]+", part) else (1, 0, part)
        for part in re.split("([0-9]+)", name)
        if part
    ]

"""One line of a text file of htools: its columns by their place, and their values as what they stand for."""

import re
from collections.abc import Sequence
from math import isfinite

from fleetlight.operations.balancing.errors import ClusterFileError

_WHOLE = re.compile("-?[0-9]+")
_REAL = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE]-?[0-9]+)?")
# The text files know no unit beyond MiB; what is larger than this is a slip, and htools reckons on with its remainder.
_GREATEST = 2**53


class LineColumns:
    """A line, divided at '|'. titles: what each column is called. defaults: what the last ones are if left out.

    Raises ClusterFileError for too few columns, and for more than there are titles.
    """

    def __init__(self, line: int, text: str, titles: Sequence[str], defaults: Sequence[str] = ()) -> None:
        values = text.split("|")
        least = len(titles) - len(defaults)
        if not least <= len(values) <= len(titles):
            wanted = str(len(titles)) if least == len(titles) else f"{least} to {len(titles)}"
            raise ClusterFileError(line, None, f"has {len(values)} columns instead of {wanted}")
        missing = len(titles) - len(values)
        self.values = [*values, *defaults[len(defaults) - missing :]]
        self._line = line
        self._titles = titles

    def __getitem__(self, index: int) -> str:
        return self.values[index]

    def error(self, index: int, problem: str) -> ClusterFileError:
        return ClusterFileError(self._line, index + 1, f"{self._titles[index]}: {problem}")

    def name(self, index: int) -> str:
        if not self[index]:
            raise self.error(index, "is empty")
        return self[index]

    def letter(self, index: int, letters: str) -> str:
        if len(self[index]) != 1 or self[index] not in letters:
            raise self.error(index, f"{self[index]!r} is none of {', '.join(letters)}")
        return self[index]

    def number(self, index: int, *, least: int = -_GREATEST) -> int:
        return self.parsed(index, self[index], least=least)

    def parsed(self, index: int, text: str, *, least: int) -> int:
        """A whole number in the column, or in a part of it."""
        if not _WHOLE.fullmatch(text):
            raise self.error(index, f"{text!r} is no whole number")
        if not least <= int(text) <= _GREATEST:
            raise self.error(index, f"{text} is not between {least} and {_GREATEST}")
        return int(text)

    def real(self, index: int) -> float:
        if not _REAL.fullmatch(self[index]) or not isfinite(float(self[index])):
            raise self.error(index, f"{self[index]!r} is no number, such as 4 or 0.5")
        return float(self[index])

    def positive(self, index: int) -> float:
        value = self.real(index)
        if value <= 0:
            raise self.error(index, f"{self[index]} is not above 0")
        return value

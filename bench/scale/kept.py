"""The figures of a long bench, kept as they come: one that was ended goes on with what is missing."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from bench.measure import Figure, figure


class KeptFigures:
    """A file with a line of JSON for each measurement that has ended: its name, seconds that it took, its figures."""

    def __init__(self, file: Path, planned: Sequence[str]) -> None:
        """planned: the names of the measurements of this run, in their order."""
        self._file = file
        self._planned = planned
        self._lines = file.read_text().splitlines() if file.exists() else []
        self._known = {
            each["name"]: [Figure(**one) for one in each["figures"]] for each in map(json.loads, self._lines)
        }
        if found := len(planned) - len(self.missing(planned)):
            _say(f"{found} of {len(planned)} are in {file}; remove it to measure them anew")

    def missing(self, names: Sequence[str]) -> Sequence[str]:
        return [name for name in names if name not in self._known]

    def known(self) -> Iterator[Figure]:
        """What earlier runs have measured of what is planned."""
        for name in self._planned:
            yield from self._known.get(name, ())

    def measured(self, name: str, measure: Callable[[], Iterator[Figure]]) -> Iterator[Figure]:
        """Measure now, and keep it under `name`, by which those of its figures begin.

        What cannot be measured is one figure that is not valid, and not kept: the next start tries it again.
        """
        _say(f"{self._planned.index(name) + 1} of {len(self._planned)}: {name}")
        begun_s = time.monotonic()
        try:
            figures = [replace(each, name=f"scale.{name}.{each.name}") for each in measure()]
        except AssertionError as error:
            yield figure(f"scale.{name}", 0, "", f"not measured: {error}", runs=0, is_valid=False)
            return
        took_s = round(time.monotonic() - begun_s, 1)
        self._known[name] = figures
        as_json = [each.as_json() for each in figures]
        self._lines.append(json.dumps({"name": name, "took_s": took_s, "figures": as_json}))
        self._save()
        yield from figures

    def _save(self) -> None:
        """Whole or not at all, also if this is ended meanwhile."""
        self._file.parent.mkdir(exist_ok=True)
        written = self._file.with_suffix(".new")
        written.write_text("".join(f"{line}\n" for line in self._lines))
        os.replace(written, self._file)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()

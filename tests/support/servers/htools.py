"""Ganeti's hbal and hspace, unmodified: the measure of what is reckoned here."""

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.session.requirements import HTOOLS

_MOVE = re.compile(r"^ +\d+\. .*=> .* +(\S+) a=", re.MULTILINE)
_COMPONENT = re.compile(r"^ +(\w+) +(\S+) +x(\S+)$", re.MULTILINE)


class Balanced(NamedTuple):
    """What hbal says of a group. scores: after each of its moves. parts: of the score before, with their weights."""

    before: float
    scores: list[float]
    parts: Mapping[str, float]

    @property
    def best(self) -> float:
        return self.scores[-1] if self.scores else self.before


def _verbosely(group: str, most_moves: int) -> tuple[str, ...]:
    return ("-G", group, "-v", "-v", "-v", "-l", str(most_moves))


@dataclass(frozen=True, slots=True)
class Htools:
    """folder: of the programs. scratch: where files for them may be written."""

    folder: Path
    scratch: Path

    def balance(self, text: str, group: str, *, most_moves: int = -1) -> Balanced | None:
        """What hbal makes of a file; None if there is nothing for it to reckon with, as without instances."""
        return self._balanced(self._run("hbal", text, *_verbosely(group, most_moves)))

    def balance_of_answers(self, folder: Path, group: str) -> Balanced:
        """What hbal makes of the answers of a remote API, which are files of a folder."""
        found = self._balanced(self._run_on("hbal", ("-m", f"file://{folder}"), *_verbosely(group, -1)))
        assert found is not None
        return found

    def loads_answers(self, folder: Path) -> bool:
        """Whether hbal can read them."""
        return "failed to load data" not in self._run_on("hbal", ("-m", f"file://{folder}"), "-l", "0").stderr

    @staticmethod
    def _balanced(said: subprocess.CompletedProcess[str]) -> Balanced | None:
        assert said.returncode == 0, said.stderr
        found = re.search(r"overall (\S+)", said.stdout)
        if found is None:
            return None
        components = said.stdout[found.end() :].split("Trying")[0]
        parts = {name: float(value) * float(weight) for name, value, weight in _COMPONENT.findall(components)}
        return Balanced(float(found[1]), [float(score) for score in _MOVE.findall(said.stdout)], parts)

    def loads(self, text: str) -> bool:
        """Whether hbal can read a file."""
        return "failed to load data" not in self._run("hbal", text, "-l", "0").stderr

    def saved(self, text: str, group: str) -> str:
        """The file as hbal writes it; the group is only one that there is."""
        # It may fail on an instance with its nodes in two groups, but only when it saves once more, after balancing.
        self._run("hbal", text, "-G", group, "-l", "0", "-S", str(self.scratch / "saved"))
        return (self.scratch / "saved.original").read_text()

    def space(self, text: str, *options: str) -> Mapping[str, str]:
        """The answers of hspace, by their names."""
        said = self._run("hspace", text, "--machine-readable", *options)
        assert said.returncode == 0, said.stderr
        answers = (line.removeprefix("HTS_").partition("=") for line in said.stdout.splitlines())
        return {name: value.strip("'") for name, _, value in answers}

    def _run(self, program: str, text: str, *options: str) -> subprocess.CompletedProcess[str]:
        path = self.scratch / "cluster.data"
        path.write_text(text)
        return self._run_on(program, ("-t", str(path)), *options)

    def _run_on(self, program: str, source: tuple[str, str], *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.folder / program, *source, *options],
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
            env={"LC_ALL": "C.UTF-8", "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")},
        )


@pytest.fixture
def htools(tmp_path: Path) -> Htools:
    """A test that asks for them needs them."""
    located = HTOOLS.locate()
    assert located is not None, "this test needs the package ganeti-htools-3.0"
    return Htools(Path(located), tmp_path)

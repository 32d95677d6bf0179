"""Console blocks of documents: read, run in a shell as somebody copies them, and compared where runs do not differ."""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread

from tests.support.waiting import wait_until

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEREDOC = re.compile(r"<<'(\w+)'")
_LATER = re.compile(r"# a few seconds later$")
_STEP_TIMEOUT_S = 90
# What differs from run to run: passwords, secrets, ids, names of simulated instances, and all numbers.
_VARIES = [
    # As it can be called from where one is.
    (re.compile(r"[\w./-]*\.venv/bin/fleetlight"), "fleetlight"),
    (re.compile(r"(password |adminPass\":\")\w+"), r"\1SECRET"),
    (re.compile(r"gAAAA[\w=-]+"), "ID"),
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "UUID"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "DIGEST"),
    (re.compile(r"\b(?:web|api|db|cache|queue|worker|build|batch|proxy|search)-(?:prod|stage|dev)-\d{3}\b"), "NAME"),
    (re.compile(r"\d+(?:\.\d+)?"), "N"),
    (re.compile(r"[\s─+-]+"), ""),
]


@dataclass(frozen=True, slots=True)
class Step:
    """One command and what the document says that it prints. line: of the document."""

    document: Path
    line: int
    command: str
    output: str

    @property
    def is_repeated(self) -> bool:
        """Whether it shows what takes a few seconds."""
        return _LATER.search(self.command) is not None

    def agrees(self, text: str) -> bool:
        """True if `text` is what it prints, but for what varies and what `…` stands for. Raises AssertionError."""
        wanted = ".*".join(map(re.escape, stable(self.output).split("…")))
        is_it = re.fullmatch(wanted, stable(text), re.DOTALL)
        assert is_it, f"{self.document.name}:{self.line}: {self.command}\n\nsays:\n{self.output}\n\nis:\n{text}"
        return True


def stable(text: str) -> str:
    """The part of an output that is the same in each run, without blanks and lines of tables."""
    for pattern, name in _VARIES:
        text = pattern.sub(name, text)
    return text


def steps(document: Path) -> Iterator[Step]:
    """Every command of the console blocks of a document, in order."""
    text = document.read_text(encoding="utf-8")
    for block in _BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(1)) + 1
        yield from _steps_of(document, first, block[1].splitlines())


def _steps_of(document: Path, first: int, lines: Sequence[str]) -> Iterator[Step]:
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        own = [lines[start].removeprefix("$ "), *lines[start + 1 : end]]
        length = _length_of_command(own)
        command = "\n".join(line.removeprefix("> ") for line in own[:length])
        yield Step(document, first + start, command, "\n".join(own[length:]))


def _length_of_command(lines: Sequence[str]) -> int:
    """How many lines the command takes: to the end of its here-document, or as long as lines are continued."""
    if heredoc := _HEREDOC.search(lines[0]):
        return lines.index(heredoc[1]) + 1
    length = 1
    while lines[length - 1].endswith("\\") or (length < len(lines) and lines[length].startswith("> ")):
        length += 1
    return length


class Shell:
    """One bash that runs step after step, as a terminal does."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            ["bash", "--norc"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._shown = ""
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def run(self, step: Step) -> None:
        """Run one step until it prints what the document says. Raises AssertionError."""
        if "event-stream" in step.command:
            self._follow(step)
        elif step.is_repeated:
            wait_until(lambda: step.agrees(self.output(step.command)), _STEP_TIMEOUT_S)
        else:
            step.agrees(self.output(step.command))

    def close(self) -> None:
        """End the shell and what it has started in the background."""
        with suppress(AssertionError):
            self.output("kill $(jobs -p) 2> /dev/null; wait")
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def output(self, command: str) -> str:
        """Everything that a command prints."""
        assert self._process.stdin is not None
        begun, end = len(self._shown), f"end of the command {len(self._shown)}"
        self._process.stdin.write(f"{command}\necho; echo '{end}'\n")
        self._process.stdin.flush()
        wait_until(lambda: f"\n{end}\n" in self._shown[begun:], _STEP_TIMEOUT_S)
        return self._shown[begun:].partition(f"\n{end}\n")[0]

    def _follow(self, step: Step) -> None:
        """Run a command that does not end by itself until it has printed enough."""
        shown = self._folder / "followed.txt"
        number = int(self.output(f"{step.command.partition('#')[0]} > {shown.name} 2>&1 &\necho $!"))
        enough = replace(step, output=f"{step.output}…")
        try:
            # The shell in the background makes the file.
            wait_until(lambda: shown.exists() and enough.agrees(shown.read_text(encoding="utf-8")), _STEP_TIMEOUT_S)
        finally:
            os.kill(number, 15)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._shown += line

"""Reads requests from an access log of Nova, uWSGI, HAProxy, nginx or Apache: a file, or endless standard input.

All but uWSGI put the request line between quotation marks. HAProxy truncates it if it is too long.
"""

import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import TextIO
from urllib.parse import parse_qsl, unquote, urlsplit

from fleetlight.cli.compare.questions import Question

STANDARD_INPUT = Path("-")
_WAITING_LINES = 1000
_LOOK_S = 0.2
# Programs poll, so a log repeats itself. A request repeated sooner than this shows nothing new.
_REPEATED_AFTER_S = 300.0
_MOST_REMEMBERED = 10_000
_QUOTED = re.compile(r'"GET (?P<target>\S+?)(?: HTTP/[\d.]+)?"')
_UWSGI = re.compile(r"\] GET (?P<target>\S+) => generated ")
# Only Nova's own request log has the microversion.
_VERSION = re.compile(r"\bmicroversion: (?P<version>2\.\d+)\b")
_LIST_OR_SERVER = re.compile(
    r"/v2(?:\.\d+)?(?:/[0-9a-f-]{32,36})?(?P<path>/servers(?:/detail|/[0-9a-fA-F-]{32,36})?)/?$"
)
_ESCAPED = re.compile(r"\\x([0-9A-Fa-f]{2})")


class LogQuestions:
    """Iterates over the requests of a log, each at most once in five minutes. Yields None while there is no new line.

    newest: the newest microversion. skipped: number of lines without a request for servers, or with a repeated one.
    """

    def __init__(self, path: Path, newest: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.skipped = 0
        self._newest = newest
        self._clock = clock
        self._asked_s: dict[Question, float] = {}
        self._lines = _lines_of_input(sys.stdin) if path == STANDARD_INPUT else _lines_of_file(path)

    def __iter__(self) -> Iterator[Question | None]:
        for line in self._lines:
            if line is None:
                yield None
                continue
            found = [each for each in questions_in(line, self._newest) if self._is_due(each)]
            self.skipped += not found
            yield from found

    def _is_due(self, question: Question) -> bool:
        now_s = self._clock()
        if now_s - self._asked_s.get(question, -_REPEATED_AFTER_S) < _REPEATED_AFTER_S:
            return False
        self._asked_s.pop(question, None)
        self._asked_s[question] = now_s
        if len(self._asked_s) > _MOST_REMEMBERED:
            del self._asked_s[next(iter(self._asked_s))]
        return True


def _lines_of_file(path: Path) -> Iterator[str | None]:
    with path.open(encoding="utf-8", errors="replace") as file:
        yield from file


def _lines_of_input(file: TextIO) -> Iterator[str | None]:
    """Read lines in a thread, and yield None whenever none came for a moment, so that the caller need not block."""
    lines: Queue[str | None] = Queue(_WAITING_LINES)

    def read() -> None:
        for line in file:
            lines.put(line)
        lines.put(None)

    Thread(target=read, daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=_LOOK_S)
        except Empty:
            yield None
            continue
        if line is None:
            return
        yield line


def question_in(line: str) -> Question | None:
    """Parse a log line that shows a request for one server or a list of servers; None for any other line.

    The version is empty if the line does not show it.
    """
    found = _QUOTED.search(line) or _UWSGI.search(line)
    if found is None:
        return None
    # nginx and Apache write bytes that are not printable as \xNN.
    target = _ESCAPED.sub(r"%\1", found["target"])
    try:
        address = urlsplit(target)
    except ValueError:
        return None
    path = _LIST_OR_SERVER.search(unquote(address.path))
    if path is None:
        return None
    version = _VERSION.search(line)
    parameters = parse_qsl(address.query, keep_blank_values=True, errors="surrogateescape")
    return Question(path["path"], tuple(parameters), version["version"] if version else "")


def questions_in(line: str, newest: str) -> Sequence[Question]:
    """The requests of a line; at the oldest and the newest microversion if it does not show the version."""
    found = question_in(line)
    if found is None:
        return ()
    return [found] if found.version else [replace(found, version=version) for version in ("2.1", newest)]

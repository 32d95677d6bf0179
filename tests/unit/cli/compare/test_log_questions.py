"""The log as a source of questions: repeated ones, lines of something else, and a standard input that goes on."""

import io
import os
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from fleetlight.cli.compare.access_log import STANDARD_INPUT, LogQuestions
from fleetlight.cli.compare.questions import Question

LINE = '10.0.0.4 "GET /v2.1/servers?limit=%s" status: 200 len: 512 microversion: 2.96 time: 0.1\n'


def asked(limit: int) -> Question:
    return Question("/servers", (("limit", str(limit)),), "2.96")


class Ticks:
    """A clock that a test sets."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_request_is_asked_again_after_five_minutes(tmp_path: Path) -> None:
    log, clock = tmp_path / "access.log", Ticks()
    log.write_text(LINE % 1 + LINE % 1 + "something else\n" + LINE % 2 + LINE % 1)
    questions = LogQuestions(log, "2.104", clock)
    found = iter(questions)
    assert [next(found), next(found)] == [asked(1), asked(2)]
    clock.now_s = 301.0
    assert list(found) == [asked(1)]
    assert questions.skipped == 2


def test_questions_that_are_remembered_have_a_bound(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    log.write_text("".join(LINE % number for number in [*range(10_001), 0, 10_000]))
    assert [each for each in LogQuestions(log, "2.104", Ticks()) if each in (asked(0), asked(10_000))] == [
        asked(0),
        asked(10_000),
        asked(0),
    ]


def test_log_that_is_no_text_is_read(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    log.write_bytes(b"\xff\xfe\x00\n" + (LINE % 1).encode())
    assert list(LogQuestions(log, "2.104", Ticks())) == [asked(1)]


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.TextIOWrapper]:
    """What writes to standard input."""
    reading, writing = os.pipe()
    with os.fdopen(reading) as read, os.fdopen(writing, "w") as write:
        monkeypatch.setattr(sys, "stdin", read)
        yield write


def test_input_that_has_no_line_yet_keeps_nobody_waiting(typed: io.TextIOWrapper) -> None:
    questions = iter(LogQuestions(STANDARD_INPUT, "2.104", Ticks()))
    assert next(questions) is None
    typed.write(LINE % 1)
    typed.flush()
    assert next(each for each in islice(questions, 100) if each is not None) == asked(1)
    typed.close()
    assert [each for each in questions if each is not None] == []

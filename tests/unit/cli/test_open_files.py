"""A process may open as many files as the system lets it, whatever the shell has begun it with."""

import resource
from collections.abc import Iterator

import pytest

from fleetlight.cli.main import allow_open_files

OPEN_FILES = resource.RLIMIT_NOFILE


@pytest.fixture(autouse=True)
def _limits_stay() -> Iterator[None]:
    soft, hard = resource.getrlimit(OPEN_FILES)
    yield
    resource.setrlimit(OPEN_FILES, (soft, hard))


def test_limit_of_the_shell_is_raised_to_that_of_the_system() -> None:
    _, hard = resource.getrlimit(OPEN_FILES)
    resource.setrlimit(OPEN_FILES, (512, hard))
    allow_open_files()
    soft, hard_then = resource.getrlimit(OPEN_FILES)
    assert soft == hard or soft >= 2**20
    assert hard_then == hard


def test_limit_that_is_high_enough_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(resource, "setrlimit", lambda *limits: asked.append(limits))
    for limits in ((2**20, 2**30), (4096, 4096), (resource.RLIM_INFINITY, resource.RLIM_INFINITY)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, found=limits: found)
        allow_open_files()
    assert asked == []


def test_system_that_allows_less_than_it_says_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, resource.RLIM_INFINITY))
    allow_open_files()
    monkeypatch.undo()

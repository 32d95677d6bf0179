"""What a command declares is opened of the settings that its options name, and closed when it ends."""

from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Annotated

import pytest

from fleetlight.cli.given import FromSettings
from fleetlight.cli.groups import with_what_it_declares
from fleetlight.cli.settings import Settings

SEEN: list[str] = []


@contextmanager
def opened(settings: Settings, data_dir: Path | None) -> Iterator[str]:
    SEEN.append(f"opened {settings.log.level} {data_dir}")
    yield "it"
    SEEN.append("closed")


def command(name: str, *, given: Annotated[str, FromSettings(opened)], limit: int = 3) -> None:
    SEEN.append(f"{name} has {given}, {limit}")


def test_command_has_the_options_where_it_declares_what_is_given() -> None:
    assert list(signature(with_what_it_declares(command)).parameters) == ["name", "config", "data_dir", "limit"]


def test_what_is_given_is_open_while_the_command_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETLIGHT_FLEET_DATABASE_URL", "sqlite:////nowhere")
    with_what_it_declares(command)(name="one", config=None, data_dir=None, limit=5)
    assert SEEN == ["opened info None", "one has it, 5", "closed"]

"""The lock of a data folder."""

import os
import stat
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from fleetlight.cli.data_folder import DataFolder
from fleetlight.cli.errors import CommandError
from fleetlight.cli.processes.serving import SharedApiState
from fleetlight.cli.settings import load_embedded_settings, with_api_options
from fleetlight.manager.commands.up import kept_watch_key


def test_second_process_is_told_who_uses_the_folder(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    with (
        folder.locked(),
        pytest.raises(CommandError, match=rf"in use by process {os.getpid()}"),
        DataFolder(tmp_path).locked(deadline_s=0),
    ):
        pass
    with folder.locked():
        assert (tmp_path / "lock").read_text() == str(os.getpid())


def test_process_that_is_just_ending_is_waited_for(tmp_path: Path) -> None:
    is_locked, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        with DataFolder(tmp_path).locked():
            is_locked.set()
            may_end.wait(60)

    with ThreadPoolExecutor() as pool:
        pool.submit(hold)
        assert is_locked.wait(60)
        threading.Timer(0.15, may_end.set).start()
        with DataFolder(tmp_path).locked(deadline_s=60):
            assert may_end.is_set()


def test_lock_left_behind_by_a_dead_process_is_taken(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("999999999")
    with DataFolder(tmp_path).locked():
        assert (tmp_path / "lock").read_text() == str(os.getpid())


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("no_umask")
def test_new_folder_is_for_this_user_alone_and_one_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    new, known = tmp_path / "new", tmp_path / "known"
    known.mkdir(mode=0o755)
    for path in (new, known):
        DataFolder(path).create()
        DataFolder(path).create()
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (new, new / "cells", known, known / "cells")]
    assert modes == [0o700, 0o700, 0o755, 0o700]


@pytest.mark.usefixtures("no_umask")
def test_lock_is_for_this_user_alone_as_whoever_can_read_it_could_hold_it(tmp_path: Path) -> None:
    with DataFolder(tmp_path).locked():
        assert stat.S_IMODE((tmp_path / "lock").stat().st_mode) == 0o600


def test_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CommandError, match="cannot create the data folder"):
        DataFolder(tmp_path / "file" / "data").create()


def test_file_in_the_place_of_the_folder_is_called_no_folder(tmp_path: Path) -> None:
    (tmp_path / "cells").touch()
    for path, what in ((tmp_path / "cells", tmp_path / "cells"), (tmp_path, tmp_path / "cells")):
        with pytest.raises(CommandError, match=f"cannot create the data folder {path}: {what} is not a folder"):
            DataFolder(path).create()


def test_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with (
        pytest.raises(CommandError, match=rf"cannot write to the data folder {tmp_path}: "),
        DataFolder(tmp_path).locked(),
    ):
        pass


def test_cursors_count_after_a_restart_as_the_folder_keeps_their_key(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    settings = with_api_options(load_embedded_settings(None, folder), None, None, "none")
    before, after = (SharedApiState.of(settings, partial(kept_watch_key, folder)) for _ in range(2))
    assert before.settings.api.watch_key == after.settings.api.watch_key is not None
    assert stat.S_IMODE(folder.watch_key.stat().st_mode) == 0o600
    others = SharedApiState.of(settings, partial(kept_watch_key, DataFolder(tmp_path / "others")))
    assert others.settings.api.watch_key != before.settings.api.watch_key

"""What one process finds out about another one that runs and says nothing."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fleetlight.cli.processes import sibling_processes
from fleetlight.cli.processes.sibling_processes import SiblingProcess, States
from fleetlight.indexer.stream.liveness import Probe


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[SiblingProcess]:
    """A process that is ready, as its parent knows, and takes no question; one may wait."""
    states = States(1)
    states.set_ready(0)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "silent"))
        listener.listen(0)
        yield SiblingProcess("silent", tmp_path / "silent", 0, states)


def ask_until_it_takes_no_more(path: Path) -> None:
    with ExitStack() as waiting:
        while True:
            question = waiting.enter_context(socket.socket(socket.AF_UNIX))
            question.setblocking(False)
            question.connect(str(path))


def test_process_at_which_too_many_questions_wait_is_stuck_as_well(silent: SiblingProcess, tmp_path: Path) -> None:
    with pytest.raises(BlockingIOError):
        ask_until_it_takes_no_more(tmp_path / "silent")
    # They wait there also when who asked has gone.
    assert silent.healthz() == Probe(False, {"status": "stuck"})


def test_metrics_of_the_others_do_not_wait_for_long(silent: SiblingProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sibling_processes, "METRICS_TIMEOUT_S", 0.01)
    assert silent.measured() is None

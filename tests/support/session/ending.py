"""Tests that are not let finish leave nothing running: SIGTERM ends them as Ctrl-C does, and servers end with them."""

import signal
from contextlib import ExitStack
from types import FrameType

import pytest

from scripts.servers.marks import marked_run


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Before the workers of pytest-xdist are started, which are part of the same run: they share what one starts."""
    run = ExitStack()
    if not hasattr(session.config, "workerinput"):
        run.enter_context(marked_run())
    session.config.add_cleanup(run.close)
    before = signal.signal(signal.SIGTERM, _interrupt)
    run.callback(signal.signal, signal.SIGTERM, before)
    # A shell lets what it starts in the background ignore Ctrl-C, and so would what tests start and end by it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt

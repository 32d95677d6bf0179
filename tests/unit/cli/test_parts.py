"""How a part of a process ends, and what is said of it."""

from collections.abc import Iterable
from threading import Event

import pytest
from structlog.testing import capture_logs

from fleetlight.cli.errors import CommandError
from fleetlight.cli.processes.parts import ProcessPart, raise_failure
from fleetlight.indexer.errors import IndexForbiddenError
from tests.support.waiting import wait_until


def ended(error: Exception | None) -> ProcessPart:
    def run(_stop: Event) -> None:
        if error is not None:
            raise error

    has_failed = Event()
    part = ProcessPart("indexer", run, has_failed.set)
    if error is not None:
        wait_until(has_failed.is_set)
    part.stop()
    return part


def said_of(parts: Iterable[ProcessPart]) -> str:
    with pytest.raises(CommandError) as caught:
        raise_failure(parts)
    return str(caught.value)


def test_what_a_person_has_to_repair_is_said_in_words_and_without_a_traceback() -> None:
    with capture_logs() as logs:
        refused = ended(IndexForbiddenError("status 401"))
    [entry] = logs
    assert entry["event"] == "part.failed"
    assert entry["reason"].startswith("status 401; ")
    assert "exc_info" not in entry
    assert said_of([ended(None), refused]) == entry["reason"]


def test_mistake_is_logged_with_its_place() -> None:
    mistake = RuntimeError("nobody expected this")
    with capture_logs() as logs:
        failed = ended(mistake)
    assert [entry["exc_info"] for entry in logs] == [mistake]
    assert said_of([failed]) == "a part of the process failed; the log says why"


def test_parts_that_ended_well_have_nothing_to_say() -> None:
    raise_failure([ended(None)])

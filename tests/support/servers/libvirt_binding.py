"""libvirt's own Python binding, in the system's Python for which it is packaged."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.session.requirements import LIBVIRT

_PYTHON = "/usr/bin/python3"
_CHECKOUT = Path(__file__).resolve().parents[3]
# Makes the calls that it reads, with one driver, and writes what each has returned, or the error.
_PROGRAM = """
import dataclasses, json, sys
from fleetlight.manager.agents.drivers.libvirt import LibvirtDriver
from fleetlight.manager.agents.errors import AgentError

def shown(value):
    if dataclasses.is_dataclass(value):
        return dataclasses.asdict(value)
    return {key: shown(each) for key, each in value.items()} if isinstance(value, dict) else value

said = []
uri, calls = json.load(sys.stdin)
driver = LibvirtDriver(uri, "default-pool")
for name, arguments, options in calls:
    try:
        found = getattr(driver, name)
        said.append({"returned": shown(found(*arguments, **options) if callable(found) else found)})
    except AgentError as error:
        said.append({"error": str(error), "kind": type(error).__name__})
json.dump(said, sys.stdout)
"""


@pytest.fixture(scope="session")
def libvirt_binding() -> None:
    """A test that asks for it needs the binding."""
    assert LIBVIRT.locate() is not None, "this test needs the package python3-libvirt"


def libvirt_calls(uri: str, calls: Sequence[tuple[str, Sequence[Any], dict[str, Any]]]) -> list[dict[str, Any]]:
    """What one driver says to calls, one after the other: what each has `returned`, or its `error` and the `kind`."""
    said = subprocess.run(
        [_PYTHON, "-c", _PROGRAM],
        input=json.dumps([uri, calls]),
        env={**os.environ, "PYTHONPATH": str(_CHECKOUT / ".editable"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert (said.returncode, said.stderr) == (0, "")
    answers: list[dict[str, Any]] = json.loads(said.stdout)
    return answers

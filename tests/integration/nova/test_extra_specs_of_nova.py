"""Extra specs from 2.86: accepted and refused is what Nova accepts and refuses."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from fleetlight.api.compute.flavors.known_extra_specs import check_extra_spec
from fleetlight.api.http.errors import BadRequestError

_SCRIPT = Path(__file__).resolve().parents[2] / "nova" / "extra_specs.py"


def test_each_extra_spec_is_taken_as_nova_takes_it(nova_environment: str) -> None:
    python = Path(nova_environment).parent / "bin" / "python"
    # With bytecode it starts in two seconds, without in twenty.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    said = subprocess.run([python, "-P", _SCRIPT], capture_output=True, text=True, check=True, env=environment)
    names = [json.loads(line) for line in said.stdout.splitlines()]
    assert len(names) > 300
    wrong = [
        (each["name"], value, "refused" if is_accepted else "accepted")
        for each in names
        for is_accepted in (True, False)
        for value in each["accepted" if is_accepted else "refused"]
        if accepts(each["name"], value) != is_accepted
    ]
    assert wrong == []


def accepts(name: str, value: str) -> bool:
    try:
        check_extra_spec(name, value)
    except BadRequestError:
        return False
    return True


@pytest.mark.parametrize("name", ["trait:HW_CPU_OF_NEXT_YEAR", "trait1:CUSTOM_GOLD"])
def test_traits_of_newer_lists_are_taken_too(name: str) -> None:
    check_extra_spec(name, "required")

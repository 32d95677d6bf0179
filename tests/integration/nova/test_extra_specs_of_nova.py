"""Extra specs: what Nova accepts, refuses, and chooses hosts by, as its own code says."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fleetlight.api.compute.flavors.conflicting_specs import check_flavor_of_server
from fleetlight.api.compute.flavors.known_extra_specs import check_extra_spec
from fleetlight.api.http.errors import BadRequestError
from fleetlight.cells.fleet.compute.flavors import Flavor
from fleetlight.manager.operations.scheduling.unsupported_specs import unsupported_specs

_SCRIPTS = Path(__file__).resolve().parents[2] / "nova"
# Nova's scheduler asks something for these, and so does ours.
_HONOURED = {"hw:cpu_policy": ("dedicated",), "trait:CUSTOM_GOLD": ("required", "forbidden"), "resources:VCPU": ("2",)}
_HONOURED |= {"trait:HW_CPU_HYPERTHREADING": ("required", "forbidden")}
# Any host of Nova's may be asked to make NUMA nodes for a guest; none of ours makes them.
_NUMA = "hw:numa_"


def said_by_nova(script: str, nova_environment: str) -> list[dict[str, Any]]:
    python = Path(nova_environment).parent / "bin" / "python"
    # With bytecode it starts in two seconds, without in twenty.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [str(python), "-P", str(_SCRIPTS / script)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return [json.loads(line) for line in said.stdout.splitlines()]


def test_each_extra_spec_is_taken_as_nova_takes_it(nova_environment: str) -> None:
    names = said_by_nova("extra_specs.py", nova_environment)
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


def test_flavor_is_refused_finds_no_host_or_any_as_in_nova(nova_environment: str) -> None:
    cases = said_by_nova("flavor_specs.py", nova_environment)
    found = {verdict: sum(case["verdict"] == verdict for case in cases) for verdict in ("refused", "asks", "nothing")}
    assert min(found.values()) > 200
    assert [case for case in cases if verdict_on(case["specs"]) != case["verdict"]] == []


def verdict_on(specs: dict[str, str]) -> str:
    """What ours would do; NUMA nodes alone are left out."""
    try:
        check_flavor_of_server(Flavor(name="m", memory_mb=4096, vcpus=4, root_gb=1, extra_specs=specs))
    except BadRequestError:
        return "refused"
    without = {name: value for name, value in specs.items() if not name.startswith(_NUMA)}
    is_honoured = any(value in _HONOURED.get(name, ()) for name, value in specs.items())
    return "asks" if unsupported_specs(without) or is_honoured else "nothing"


@pytest.mark.parametrize("name", ["trait:HW_CPU_OF_NEXT_YEAR", "trait1:CUSTOM_GOLD"])
def test_traits_of_newer_lists_are_taken_too(name: str) -> None:
    check_extra_spec(name, "required")

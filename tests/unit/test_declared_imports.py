"""Every library that is imported is declared in pyproject.toml, where what imports it is installed."""

import ast
import re
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.support.session.product import FOLDERS, FOR_DEVELOPERS, PROJECT, ROOT

# Which modules an extra is for; others must do without what it installs.
EXTRAS = {
    "keystone": {"api/identity/keystone.py"},
    "openid": {"api/identity/openid/provider.py"},
    "nova": {
        "cells/kinds/nova_db/databases.py",
        "cells/kinds/nova_db/commit_log/stream.py",
        "cells/kinds/nova_db/commit_log/server.py",
    },
    "redis": {"manager/operations/nodes/stores/redis.py"},
    "libvirt": {"manager/agents/drivers/libvirt.py"},
    "export": {"cli/export_files.py"},
    "mcp": {"api/assistants/tools.py"},
    "traces": {"bus/traces.py", "cli/processes/tracing.py"},
}
# They run in environments of their own, with Nova (scripts/nova-environment) and with mutmut (scripts/mutate).
ELSEWHERE = {"tests/nova", "bench/nova_peer.py", "scripts/mutants.py"}


def _declared(requirements: list[str]) -> set[str]:
    return {_normal(re.split(r"[\s\[<>=!~;]", requirement)[0]) for requirement in requirements}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module


def _libraries(path: Path) -> set[str]:
    """Names of the packages that a module imports which are neither ours nor Python's."""
    ours = {"fleetlight", *FOR_DEVELOPERS}
    return {name.partition(".")[0] for name in _imports(path)} - ours - sys.stdlib_module_names


def _undeclared(package: str, declared: set[str]) -> dict[str, set[str]]:
    """By module, what it imports and is not among what is declared for it."""
    distributions = packages_distributions()
    found: dict[str, set[str]] = {}
    for path in (ROOT / package).rglob("*.py"):
        module = path.relative_to(ROOT).as_posix()
        if any(module == place or module.startswith(f"{place}/") for place in ELSEWHERE):
            continue
        extras = [
            PROJECT["project"]["optional-dependencies"][extra] for extra, users in EXTRAS.items() if module in users
        ]
        there = declared.union(*map(_declared, extras))
        for library in _libraries(path):
            if there.isdisjoint(map(_normal, distributions.get(library, [library]))):
                found.setdefault(module, set()).add(library)
    return found


@pytest.mark.parametrize("package", FOLDERS)
def test_product_imports_nothing_that_is_not_declared(package: str) -> None:
    assert _undeclared(package, _declared(PROJECT["project"]["dependencies"])) == {}


@pytest.mark.parametrize("package", FOR_DEVELOPERS)
def test_tests_and_tools_import_nothing_that_is_not_declared(package: str) -> None:
    groups = PROJECT["project"]["dependencies"] + PROJECT["dependency-groups"]["dev"]
    assert _undeclared(package, _declared(groups)) == {}


def test_product_has_one_import_name() -> None:
    """The root is on the path of tests: a folder imported by its own name would be there a second time, without a
    word.
    """
    modules = [path for folder in (*FOLDERS, *FOR_DEVELOPERS) for path in (ROOT / folder).rglob("*.py")]
    imported = {(path, name) for path in modules for name in _imports(path) if name.partition(".")[0] in FOLDERS}
    assert imported == set()
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} == {*FOLDERS, *FOR_DEVELOPERS}


def test_modules_of_extras_exist() -> None:
    assert {extra for extra, modules in EXTRAS.items() if all((ROOT / module).exists() for module in modules)} == set(
        PROJECT["project"]["optional-dependencies"]
    )

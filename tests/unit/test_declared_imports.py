"""Every library that is imported is declared in pyproject.toml, where what imports it is installed."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROJECT: Mapping[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PRODUCT: list[str] = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
FOR_DEVELOPERS = ["bench", "scripts", "tests"]
# Which modules an extra is for; others must do without what it installs.
EXTRAS = {
    "keystone": {"api/identity/keystone.py"},
    "nova": {"cells/kinds/nova_db/databases.py"},
    "redis": {"operations/nodes/stores/redis.py"},
    "libvirt": {"agents/drivers/libvirt.py"},
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
    ours = {*PRODUCT, *FOR_DEVELOPERS}
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


@pytest.mark.parametrize("package", PRODUCT)
def test_product_imports_nothing_that_is_not_declared(package: str) -> None:
    assert _undeclared(package, _declared(PROJECT["project"]["dependencies"])) == {}


@pytest.mark.parametrize("package", FOR_DEVELOPERS)
def test_tests_and_tools_import_nothing_that_is_not_declared(package: str) -> None:
    groups = PROJECT["project"]["dependencies"] + PROJECT["dependency-groups"]["dev"]
    assert _undeclared(package, _declared(groups)) == {}


def test_modules_of_extras_exist() -> None:
    assert {extra for extra, modules in EXTRAS.items() if all((ROOT / module).exists() for module in modules)} == set(
        PROJECT["project"]["optional-dependencies"]
    )

"""Try mutants of modules: collect the tests once, and fork for each mutant what is left to do.

Runs in a copy of the checkout, which `scripts/mutate` makes, and replaces its modules. mutmut says which changes there
are, and puts them all into a module, where its variable chooses one. The process that collects the tests has imported
all that they need, so a mutant costs the time of the tests that reach it, the fastest first, until one fails; not that
of pytest.

What mutmut leaves alone is not tried: tables of a module, properties and other decorated functions. What is called only
while modules are imported runs before a mutant is chosen, and counts as not reached.
"""

import argparse
import difflib
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import mutmut.mutation.trampoline as chosen
import pytest
from _pytest.runner import runtestprotocol
from mutmut.mutation.file_mutation import mutate_file_contents
from mutmut.utils.format_utils import get_mutant_name, mangled_name_from_mutant_name

_fork = multiprocessing.get_context("fork")
# One test that takes this long hangs. So does what makes its tests take so many times as long, and that besides.
_TEST_TIMEOUT_S = 20
_TIMES_SLOWER = 3
KILLED, TIMEOUT, SURVIVED, NOT_REACHED, NOT_TRIED = "killed", "timeout", "survived", "not reached", "not tried"
_NOT_NOTICED = (SURVIVED, NOT_REACHED)


@dataclass(frozen=True, slots=True)
class Module:
    """names: of the mutants that are tried. total: how many there are. functions: by name, the lines of each mutant."""

    path: Path
    names: Sequence[str]
    total: int
    functions: Mapping[str, Sequence[str]]

    def diff(self, name: str) -> str:
        """What the mutant of that name changes."""
        mutant = name.rpartition(".")[2]
        original = f"{mangled_name_from_mutant_name(mutant)}__mutmut_orig"
        before, after = ([line.replace(which, "_") for line in self.functions[which]] for which in (original, mutant))
        lines = difflib.unified_diff(before, after, str(self.path), str(self.path), lineterm="")
        return "\n".join(lines)


def mutate(path: Path, sample: int, seed: int) -> Module:
    """Put the mutants into the module at `path`, and choose at most `sample` of them (0: all), the same for a seed."""
    mutated = mutate_file_contents(str(path), path.read_text())
    path.write_text(mutated.code)
    names = [get_mutant_name("fleetlight" / path, name) for name in mutated.mutant_names]
    chance = random.Random(f"{seed} {path}")  # noqa: S311  # no secret
    tried = chance.sample(names, sample) if 0 < sample < len(names) else names
    lines, spans = mutated.code.splitlines(), mutated.line_span_by_function_name
    functions = {name: lines[span.start - 1 : span.end] for name, span in spans.items()}
    return Module(path, tried, len(names), functions)


@dataclass(slots=True)
class Reached:
    """tests: by the mangled name of a function, the tests that call it. seconds: that a test takes."""

    tests: dict[str, list[str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


class Mutants:
    """A plugin of pytest that tries mutants in place of running the tests once."""

    def __init__(self, modules: Sequence[Module], time_limit_s: float) -> None:
        self._modules = modules
        self._ends_at = time.monotonic() + time_limit_s
        self.outcomes: dict[str, str] = {}

    def pytest_configure(self) -> None:
        """An example that fails is enough; the smallest is not needed."""
        from hypothesis import Phase, settings  # noqa: PLC0415  # pytest warns of what is imported before it

        settings.register_profile("mutants", settings(), phases=[Phase.explicit, Phase.generate])
        settings.load_profile("mutants")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted("the tests cannot be collected")
        items = {item.nodeid: item for item in session.items}
        reached = _reached(items)
        names = [name for module in self._modules for name in module.names]
        # Those that cost least first: what is cut off by the limit of time is then the smallest part.
        tests = {name: _fastest_first(reached, items, name) for name in names}
        for name in sorted(names, key=lambda name: sum(reached.seconds[test.nodeid] for test in tests[name])):
            self.outcomes[name] = self._outcome(name, tests[name], reached)
        return True

    def _outcome(self, name: str, tests: Sequence[pytest.Item], reached: Reached) -> str:
        if not tests:
            return NOT_REACHED
        left_s = self._ends_at - time.monotonic()
        if left_s <= 0:
            return NOT_TRIED
        limit_s = _TEST_TIMEOUT_S + _TIMES_SLOWER * sum(reached.seconds[test.nodeid] for test in tests)
        process = _fork.Process(target=_try_mutant, args=(name, tests))
        process.start()
        process.join(limit_s)
        if process.is_alive():
            process.kill()
            process.join()
            return TIMEOUT
        return SURVIVED if process.exitcode == 0 else KILLED


def _reached(items: Mapping[str, pytest.Item]) -> Reached:
    """Run all tests, without a mutant, in a process of their own; ends this one if a test fails."""
    receiver, sender = _fork.Pipe(duplex=False)
    process = _fork.Process(target=lambda: sender.send(_follow(list(items.values()))))
    process.start()
    sender.close()
    try:
        reached, failed = receiver.recv()
    except EOFError:
        pytest.exit("the tests ended their process", 2)
    process.join()
    if failed:
        pytest.exit(f"these tests fail without a mutant: {', '.join(failed)}", 2)
    assert isinstance(reached, Reached)  # noqa: S101  # a pipe carries anything
    return reached


def _follow(items: Sequence[pytest.Item]) -> tuple[Reached, Sequence[str]]:
    reached, failed, called = Reached(), [], set[str]()
    chosen.record_trampoline_hit = lambda name, caller=None: called.add(name)
    chosen.set_mutant_under_test("stats")
    for item, following in zip(items, [*items[1:], None], strict=True):
        begun = time.monotonic()
        if not _passes(item, following):
            failed.append(item.nodeid)
        reached.seconds[item.nodeid] = time.monotonic() - begun
        for name in called:
            reached.tests.setdefault(name, []).append(item.nodeid)
        called.clear()
    return reached, failed


def _fastest_first(reached: Reached, items: Mapping[str, pytest.Item], name: str) -> Sequence[pytest.Item]:
    """The tests of one module stay together: they may share what takes long to make."""
    by_module: dict[str, list[str]] = defaultdict(list)
    for test in reached.tests.get(mangled_name_from_mutant_name(name), ()):
        by_module[test.partition("::")[0]].append(test)
    modules = sorted(by_module.values(), key=lambda tests: fmean(reached.seconds[test] for test in tests))
    return [items[test] for tests in modules for test in sorted(tests, key=reached.seconds.__getitem__)]


def _try_mutant(name: str, tests: Sequence[pytest.Item]) -> None:
    """Ends the process: with 0 if no test notices the mutant."""
    chosen.set_mutant_under_test(name)
    for item, following in zip(tests, [*tests[1:], None], strict=True):
        if not _passes(item, following):
            os._exit(1)
    os._exit(0)


def _passes(item: pytest.Item, following: pytest.Item | None) -> bool:
    return not any(report.failed for report in runtestprotocol(item, log=False, nextitem=following))


def _report(modules: Sequence[Module], outcomes: Mapping[str, str], survivors: Path) -> bool:
    """Print a line for each module, and write what no test noticed as a diff; returns whether there is any."""
    diffs = [
        f"# {name}: {outcomes[name]}\n{module.diff(name)}\n"
        for module in modules
        for name in module.names
        if outcomes[name] in _NOT_NOTICED
    ]
    survivors.write_text("".join(diffs))
    for module in modules:
        counts = Counter(outcomes[name] for name in module.names)
        told = ", ".join(f"{counts[kind]} {kind}" for kind in (KILLED, TIMEOUT, SURVIVED, NOT_REACHED, NOT_TRIED))
        print(f"{module.path}: {len(module.names)} of {module.total} mutants: {told}")
    if diffs:
        print(f"What no test noticed is in {survivors}")
    return bool(diffs)


def main() -> int:
    """Returns 1 if a mutant survived, 2 if none could be tried."""
    parser = argparse.ArgumentParser(prog="scripts/mutate")
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--time-limit-s", type=float, default=900)
    parser.add_argument("--survivors", type=Path, required=True)
    parser.add_argument("--tests", nargs="+", required=True)
    parser.add_argument("modules", type=Path, nargs="+")
    asked = parser.parse_args()
    modules = [mutate(path, asked.sample, asked.seed) for path in asked.modules]
    plugin = Mutants(modules, asked.time_limit_s)
    # Temporary files are in a folder that is emptied for each mutant.
    options = f"-q -x --tb=short -p no:xdist -p no:cacheprovider --basetemp=temporary --timeout={_TEST_TIMEOUT_S}"
    os.environ["FLEETLIGHT_TEST_MIGRATED"] = tempfile.mkdtemp(dir=Path.cwd())
    pytest.main([*options.split(), *asked.tests], [plugin])
    if not plugin.outcomes:
        return 2
    return int(_report(modules, plugin.outcomes, asked.survivors))


if __name__ == "__main__":
    sys.exit(main())

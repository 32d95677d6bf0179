"""pytest hooks: tests whose server is missing are left out (not skipped), and the end of the run says so.

With `FLEETLIGHT_TEST_ALL=1` a missing server is an error before the first test, a skipped test fails the run, and so
does a server over which no test runs by day.

A test that repeats over a server what another of its cases does without it is of the night.
"""

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence

import pytest

from tests.support.session.requirements import ALL_VARIABLE, REQUIREMENTS, missing_requirements

NIGHT = "night"
"""The marker of a test that `scripts/test --night` runs, and no run by day."""
_LEFT_OUT = pytest.StashKey[dict[str, int]]()
_OWN_SERVERS = "own_servers"
_WORKER_KEY = "fleetlight_left_out"


def _must_run_all() -> bool:
    return os.environ.get(ALL_VARIABLE) == "1"


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_LEFT_OUT] = {}
    missing = missing_requirements()
    if _must_run_all() and missing:
        names = ", ".join(f"{requirement.title} ({requirement.variable})" for requirement in missing)
        raise pytest.UsageError(f"{ALL_VARIABLE}=1 needs every server and the samples, but these are missing: {names}")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by what they need, and leave out those whose requirement is missing.

    Those that are marked `own_servers` come first.
    """
    missing = {requirement.marker for requirement in missing_requirements()}
    counts = config.stash[_LEFT_OUT]
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        for requirement in REQUIREMENTS:
            if requirement.fixture in getattr(item, "fixturenames", ()):
                item.add_marker(requirement.marker)
    for item in list(repeated_over_servers(items)):
        item.add_marker(NIGHT)
    for item in items:
        absent = missing.intersection(mark.name for mark in item.iter_markers())
        for marker in absent:
            counts[marker] = counts.get(marker, 0) + 1
        (left_out if absent else kept).append(item)
    is_whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if _must_run_all() and is_whole and (titles := only_by_night(items)):
        raise pytest.UsageError(f"No test runs by day over {', '.join(titles)}: one must not be marked {NIGHT}")
    # xdist hands out tests in the order of the list, so those that share costly servers get to one worker.
    kept.sort(key=lambda item: item.get_closest_marker(_OWN_SERVERS) is None)
    items[:] = kept
    if left_out:
        config.hook.pytest_deselected(items=left_out)


def repeated_over_servers(items: Sequence[pytest.Item]) -> Iterator[pytest.Item]:
    """The cases of tests that need more than another case of the same test that is not of the night."""
    markers = {requirement.marker for requirement in REQUIREMENTS}
    needs_by_test = defaultdict[str, list[tuple[pytest.Item, frozenset[str]]]](list)
    for item in items:
        if item.get_closest_marker(NIGHT) is None:
            needs = frozenset(markers.intersection(mark.name for mark in item.iter_markers()))
            needs_by_test[item.nodeid.partition("[")[0]].append((item, needs))
    for cases in needs_by_test.values():
        yield from (item for item, needs in cases if any(others < needs for _, others in cases))


def only_by_night(items: Sequence[pytest.Item]) -> list[str]:
    """Titles of the requirements of these tests that no test has by day."""
    by_night = {mark.name for item in items for mark in item.iter_markers()}
    by_day = {mark.name for item in items if item.get_closest_marker(NIGHT) is None for mark in item.iter_markers()}
    return [requirement.title for requirement in REQUIREMENTS if requirement.marker in by_night - by_day]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of xdist hands its counts on to the process that reports; the reporter turns skips into a failure."""
    worker_output = getattr(session.config, "workeroutput", None)
    if worker_output is not None:
        worker_output[_WORKER_KEY] = session.config.stash[_LEFT_OUT]
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if _must_run_all() and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """xdist: every worker collects all tests, so the counts of one are the counts of the run."""
    counts = getattr(node, "workeroutput", {}).get(_WORKER_KEY)
    if counts is not None:
        node.config.stash[_LEFT_OUT] = counts  # type: ignore[attr-defined]  # WorkerController.config


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    left_out = config.stash[_LEFT_OUT]
    missing = [requirement for requirement in missing_requirements() if left_out.get(requirement.marker)]
    if missing:
        terminalreporter.section("left out")
        for requirement in missing:
            terminalreporter.write_line(
                f"{left_out.get(requirement.marker)} tests need {requirement.title}: {requirement.variable} is not set"
            )
    skipped = len(terminalreporter.stats.get("skipped", []))
    if skipped and _must_run_all():
        terminalreporter.write_line(
            f"FAILED: {skipped} tests were skipped; with {ALL_VARIABLE}=1 none may be", red=True
        )

"""Plugin of `scripts/test --day` and `--night`: what pytest-rerunfailures may run again, and what is kept of it.

A test that needs a second run is a fault to be looked into. So few get one, and none of those that say whether data is
damaged, whether an answer is complete, or who may see what: of those a single failure is the finding. They are marked
`no_rerun`, or in a folder that `scripts/test` leaves out.
"""

from pathlib import Path

import pytest

KEPT = Path("build/tests-run-again.txt")
"""The tests that a run has run again, in the checkout, each with its first failure."""


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.get_closest_marker("no_rerun") is not None:
        item.add_marker(pytest.mark.flaky(reruns=0))


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    reasons = {report.nodeid: report.longreprtext for report in terminalreporter.stats.get("rerun", [])}
    if not reasons:
        return
    file = config.rootpath / KEPT
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(f"== {name}\n{reason}\n" for name, reason in sorted(reasons.items())))
    failed = {report.nodeid for kind in ("failed", "error") for report in terminalreporter.stats.get(kind, [])}
    for name, reason in sorted(reasons.items()):
        if name not in failed:
            terminalreporter.write_line(reason)
            terminalreporter.write_line(
                f"UNSTABLE: {name} failed, and passed when it ran again. Find out why before it is trusted", yellow=True
            )

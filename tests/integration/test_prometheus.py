"""A real Prometheus that scrapes a real fleet understands each rule and each panel, and raises what it should."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.test_up import Up, free_port
from tests.support.servers.prometheus import alert_rules, panels, prometheus
from tests.support.waiting import wait_until

_INTERVAL = "30s"
_NOTHING_TO_SHOW = {
    "Alerts that are raised",
    "Failures that indexers wait out",
    "Failures that relays wait out",
    "Actions that fail",
    "Calls of node agents",
}
"""Panels of what need not happen in a fleet without a fault and without agents."""


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    running = Up(tmp_path)
    yield running
    running.clean_up()


def test_rules_and_panels_are_evaluated_and_only_a_fault_fulfils_a_rule(
    promtool: Path, up: Up, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert promtool.exists()
    port = free_port()
    monkeypatch.setenv("FLEETLIGHT_API_PROMETHEUS_URL", f"http://127.0.0.1:{port}")
    up.start("--simulate", "--instances", "40", "--rate", "10", "--cells", "2")
    rules = alert_rules()
    with prometheus(tmp_path, port, {"up": up.monitoring_port}) as running:

        def fulfilled() -> set[str]:
            up.http.get("/v2.1/servers?limit=5").raise_for_status()
            return {name for name, rule in rules.items() if running.query(rule["expr"])}

        wait_until(lambda: len(running.query("fleetlight_api_index_age_seconds")) == 2, timeout_s=60)
        wait_until(lambda: running.rules().keys() == rules.keys(), timeout_s=30)
        wait_until(lambda: fulfilled() == set(), timeout_s=60)
        assert {name: rule["lastError"] for name, rule in running.rules().items() if rule.get("lastError")} == {}

        def empty() -> set[str]:
            up.http.get("/v2.1/servers?limit=5").raise_for_status()
            return {
                title
                for title, expressions in panels().items()
                for expression in expressions
                if not running.query(expression.replace("$__rate_interval", _INTERVAL))
            }

        wait_until(lambda: empty() <= _NOTHING_TO_SHOW, timeout_s=60)

        def unknown() -> set[str]:
            answer = up.http.get("/fleetlight/series").json()
            assert answer["problem"] is None, answer["problem"]
            return {name for name, values in answer["series"].items() if values[-1] is None}

        wait_until(lambda: unknown() == set(), timeout_s=60)
        up.kill()
        wait_until(lambda: running.rules()["FleetlightProcessDown"]["state"] == "pending", timeout_s=30)

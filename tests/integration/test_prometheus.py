"""A real Prometheus that scrapes a real fleet understands each rule and each panel, and raises what it should."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.integration.test_up import Up, free_port
from tests.support.fleets.console_fleet import console_fleet
from tests.support.servers.prometheus import alert_rules, panels, prometheus
from tests.support.waiting import wait_until

pytestmark = pytest.mark.night

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


def test_targets_that_are_discovered_are_scraped_and_stay_while_a_cell_is_down(promtool: Path, tmp_path: Path) -> None:
    assert promtool.exists()
    with console_fleet(tmp_path, FLEETLIGHT_MONITORING_PORT=str(monitoring := free_port())) as world:
        host, as_admin = world.api.url.removeprefix("http://"), httpx.BasicAuth("admin", world.password("admin"))
        probes = {world.create(cell, display_name="probe") for cell in ("cell1", "cell2")}
        view = {"name": "web", "filter": 'name == "probe"', "fields": ["cell"], "order": []}
        httpx.post(f"{world.api.url}/fleetlight/views", json=view, auth=as_admin).raise_for_status()
        login = {"basic_auth": {"username": "admin", "password": world.password("admin")}}
        url = f"{world.api.url}/fleetlight/sd/web?port=9100&all_projects=1"
        discovered = {
            "job_name": "discovered",
            "http_sd_configs": [{"url": url, "refresh_interval": "1s", **login}],
            "relabel_configs": [
                {"source_labels": [f"__meta_fleetlight_{name}"], "target_label": name}
                for name in ("uuid", "cell", "complete")
            ]
            # What is simulated listens nowhere; this process of ours does.
            + [{"target_label": "__address__", "replacement": f"127.0.0.1:{monitoring}"}],
        }
        instances = {
            "job_name": "fleetlight-instances",
            "metrics_path": "/fleetlight/metrics/instances",
            "static_configs": [{"targets": [host]}],
            **login,
        }
        with prometheus(tmp_path, free_port(), {"up": monitoring}, discovered, instances) as running:

            def found(complete: str) -> set[str]:
                """The instances that are scraped as such of a complete answer, or as such of the last one."""
                labels = [each["labels"] for each in running.targets() if each["scrapePool"] == "discovered"]
                return {each["uuid"] for each in labels if each["complete"] == complete}

            def value(expression: str) -> set[str]:
                return {each["value"][1] for each in running.query(expression)}

            def listed() -> int:
                """How many there are: the simulator may still be adding some."""
                asked = f"{world.api.url}/fleetlight/query/counts?what=instance&all_projects=1"
                return sum(each["count"] for each in httpx.get(asked, auth=as_admin).json()["groups"])

            wait_until(lambda: found("true") == probes, timeout_s=60)
            wait_until(lambda: value('count(up{job="discovered"} == 1)') == {"2"}, timeout_s=60)
            wait_until(lambda: value("sum(fleetlight_instances)") == {str(listed())}, timeout_s=60)
            with world.without("cell1"):
                wait_until(lambda: found("false") == probes, timeout_s=60)
            wait_until(lambda: found("true") == probes, timeout_s=60)

"""Prometheus and promtool, as the Debian package has them, and the rules and panels that they are to understand."""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import yaml

from tests.support.session.requirements import PROMETHEUS
from tests.support.waiting import wait_until

CHECKOUT = Path(__file__).parents[3]
RULES = CHECKOUT / "deploy" / "prometheus" / "alerts.yml"
EXAMPLE = CHECKOUT / "deploy" / "prometheus" / "prometheus.yml"
DASHBOARD = CHECKOUT / "deploy" / "grafana" / "fleetlight.json"


@pytest.fixture
def promtool() -> Path:
    located = PROMETHEUS.locate()
    assert located is not None, "this test needs the package prometheus"
    return Path(located)


def alert_rules() -> Mapping[str, Mapping[str, Any]]:
    """The rules by the names of their alerts."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def panels() -> Mapping[str, list[str]]:
    """The expressions of each panel of the dashboard, by its title."""
    dashboard = msgspec.json.decode(DASHBOARD.read_bytes())
    return {
        panel["title"]: [target["expr"] for target in panel["targets"]]
        for panel in dashboard["panels"]
        if "targets" in panel
    }


class Prometheus:
    """One that runs."""

    def __init__(self, port: int) -> None:
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=20)

    def is_ready(self) -> bool:
        try:
            return self._http.get("/status/buildinfo").status_code == 200
        except httpx.TransportError:
            return False

    def query(self, expression: str) -> list[Mapping[str, Any]]:
        """What an expression gives now. Fails when Prometheus refuses it."""
        answer = self._http.get("/query", params={"query": expression}).json()
        assert answer["status"] == "success", (expression, answer)
        return list(answer["data"]["result"])

    def rules(self) -> Mapping[str, Mapping[str, Any]]:
        """What it says of each rule that it has evaluated, by the name of its alert."""
        groups = self._http.get("/rules").json()["data"]["groups"]
        return {rule["name"]: rule for group in groups for rule in group["rules"] if rule["lastEvaluation"][0] == "2"}

    def targets(self) -> list[Mapping[str, Any]]:
        """Those that are scraped, as it says of them."""
        return list(self._http.get("/targets").json()["data"]["activeTargets"])

    def close(self) -> None:
        self._http.close()


@contextmanager
def prometheus(folder: Path, port: int, targets: Mapping[str, int], *more: Mapping[str, Any]) -> Iterator[Prometheus]:
    """One that scrapes and evaluates each second.

    targets: the ports of processes on this machine, by their names. more: what is scraped besides.
    """
    jobs = [{"targets": [f"127.0.0.1:{target}"], "labels": {"process": name}} for name, target in targets.items()]
    config = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(RULES)]
    config["scrape_configs"] = [{**config["scrape_configs"][0], "static_configs": jobs}, *more]
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    command = [
        "/usr/bin/prometheus",
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'prometheus'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        running = Prometheus(port)
        try:
            wait_until(running.is_ready, timeout_s=30)
            yield running
        finally:
            running.close()
            process.terminate()
            process.wait(timeout=20)

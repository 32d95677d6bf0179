"""The chart makes what Kubernetes takes, of settings and commands that there are, and refuses what cannot work."""

import json
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import certifi
import kubernetes_validate
import pytest
import typer
import yaml

from fleetlight.cli.app import app
from fleetlight.cli.settings import load_settings
from tests.support.servers.composition import CHECKOUT

CHART = CHECKOUT / "deploy" / "helm" / "fleetlight"
MONITORING = {"ServiceMonitor", "PrometheusRule"}
"""Kinds of the Prometheus operator, which no release of Kubernetes has a schema of."""
DATABASE = "postgresql://fleetlight@db/fleet"

Values = dict[str, Any]

NOVA: Values = {
    "settings": {
        "api": {"auth": "keystone"},
        "index": {"urls": ["https://one:9200", "https://two:9200"]},
        "keystone": {"auth_url": "https://keystone/v3", "username": "fleetlight"},
    },
    "secrets": {
        "fleet.database_url": {"secret": "fleetlight-database", "key": "url"},
        "api.watch_key": {"secret": "fleetlight-api", "key": "watch-key"},
        "keystone.password": {"secret": "fleetlight-api", "key": "keystone"},
    },
}


def changed(**changes: Any) -> Values:
    values = deepcopy(NOVA)
    for path, value in changes.items():
        *folders, name = path.split("__")
        place = values
        for folder in folders:
            place = place.setdefault(folder, {})
        place[name] = value
    return values


PAGE = (CHECKOUT / "docs" / "operations" / "kubernetes.md").read_text()
ALL = ["api", "indexer", "relay", "worker", "deliverer"]
SETS: dict[str, Values] = {
    "page": yaml.safe_load(PAGE.partition("```yaml\n")[2].partition("```")[0]),
    "nova": NOVA,
    "native cells": changed(processes={name: {"enabled": True} for name in ALL}),
    "one of each": changed(
        secrets={"fleet.database_url": {"secret": "fleetlight-database", "key": "url"}},
        processes={"api": {"replicas": 1}, "indexer": {"replicas": 1}},
        podDisruptionBudget={"enabled": False},
        networkPolicy={"enabled": False},
        migration={"enabled": False},
    ),
    "accounts and authorities": changed(
        settings__index={"backend": "opensearch", "urls": ["https://search:9200"]},
        files={"index.ca_certs": {"secret": "ca", "key": "ca.crt"}, "bus.ca_certs": {"secret": "ca", "key": "ca.crt"}},
        migration={"secrets": {"fleet.database_url": {"secret": "owner", "key": "url"}}},
        processes={
            "api": {"env": [{"name": "PGUSER", "value": "fleetlight_api"}], "nodeSelector": {"role": "api"}},
            "indexer": {"tolerations": [{"operator": "Exists"}], "annotations": {"note": "of the indexer"}},
        },
        imagePullSecrets=[{"name": "registry"}],
    ),
    "monitored": changed(
        serviceMonitor={"enabled": True, "labels": {"release": "prometheus"}},
        prometheusRule={"enabled": True},
        dashboard={"enabled": True},
        networkPolicy={"monitoring": [{"namespaceSelector": {}}], "api": [{"podSelector": {}}]},
        service={"type": "LoadBalancer", "port": 443, "annotations": {"pool": "inside"}},
    ),
}


def helm(*arguments: str, values: Values, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "values.yaml").write_text(yaml.safe_dump(values))
    command = [str(Path(sys.executable).with_name("helm")), *arguments, "--values", str(folder / "values.yaml")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@cache
def rendered(name: str) -> list[Any]:
    with TemporaryDirectory() as folder:
        done = helm("template", "site", str(CHART), values=SETS[name], folder=Path(folder))
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def pods(documents: list[Any]) -> Iterator[tuple[str, Any]]:
    for document in documents:
        if document["kind"] == "Pod":
            yield document["metadata"]["name"], document["spec"]
        elif document["kind"] in {"Deployment", "Job"}:
            yield document["metadata"]["name"], document["spec"]["template"]["spec"]


every_set = pytest.mark.parametrize("name", SETS)


@every_set
def test_chart_has_no_fault_that_lint_knows(name: str, tmp_path: Path) -> None:
    done = helm("lint", "--strict", str(CHART), values=SETS[name], folder=tmp_path)
    assert done.returncode == 0, done.stdout


@every_set
@pytest.mark.parametrize("release", ["1.27", "1.37"])
def test_kubernetes_takes_every_object(name: str, release: str) -> None:
    documents = rendered(name)
    assert {"Deployment", "Service", "Pod"} <= {document["kind"] for document in documents}
    for document in documents:
        if document["kind"] not in MONITORING:
            kubernetes_validate.validate(document, release, strict=True)


@every_set
def test_settings_are_known_and_valid(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    for _, pod in pods(rendered(name)):
        mounted = {
            item["path"] for source in pod["volumes"][1]["projected"]["sources"] for item in source["secret"]["items"]
        }
        for key in mounted:
            other = Path(certifi.where()).read_text() if key.endswith(".ca_certs") else "x" * 40
            (secrets / key).write_text(DATABASE if key == "fleet.database_url" else other)
        with monkeypatch.context() as environment:
            for variable in pod["containers"][0]["env"]:
                value = variable.get("value", "from-a-secret").replace("/run/secrets/fleetlight", str(secrets))
                environment.setenv(variable["name"], value)
            settings = load_settings(None, None)
        assert settings.fleet.database_url.get_secret_value() == DATABASE
        assert settings.index.backend == SETS[name]["settings"]["index"].get("backend", "elasticsearch")
        assert settings.monitoring.port == 9100


@every_set
def test_commands_are_of_this_version(name: str) -> None:
    group: Any = typer.main.get_command(app)
    commands = set()
    for _, pod in pods(rendered(name)):
        word, *arguments = pod["containers"][0]["args"]
        command = group.commands[word].loaded()
        while hasattr(command, "commands"):
            word, *arguments = arguments
            command = command.commands[word]
        # Parses the options, and calls nothing.
        command.make_context(word, arguments)
        commands.add(word)
    assert {"doctor", "api", "indexer"} <= commands


@every_set
def test_no_pod_may_do_more_than_a_restricted_one(name: str) -> None:
    for _, pod in pods(rendered(name)):
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        [container] = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_monitoring_is_reached_by_nobody_who_is_not_named() -> None:
    policies = [each["spec"] for each in rendered("nova") if each["kind"] == "NetworkPolicy"]
    allowed = [
        (rule.get("from"), [port["port"] for port in rule["ports"]])
        for each in policies
        for rule in each["ingress"] or []
    ]
    assert allowed == [(None, ["api"])]


def test_tables_are_upgraded_before_anything_else_by_the_account_that_owns_them() -> None:
    [job] = [each for each in rendered("accounts and authorities") if each["kind"] == "Job"]
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    sources = job["spec"]["template"]["spec"]["volumes"][1]["projected"]["sources"]
    names = {source["secret"]["items"][0]["path"]: source["secret"]["name"] for source in sources}
    assert names["fleet.database_url"] == "owner"


def test_rules_and_dashboard_are_those_of_every_installation() -> None:
    documents = {each["kind"]: each for each in rendered("monitored")}
    assert documents["PrometheusRule"]["spec"] == yaml.safe_load(
        (CHECKOUT / "deploy" / "prometheus" / "alerts.yml").read_text()
    )
    assert json.loads(documents["ConfigMap"]["data"]["fleetlight.json"]) == json.loads(
        (CHECKOUT / "deploy" / "grafana" / "fleetlight.json").read_text()
    )


def test_package_is_whole_and_of_the_version_of_the_program(tmp_path: Path) -> None:
    version = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["version"]
    program = str(Path(sys.executable).with_name("helm"))
    subprocess.run([program, "package", str(CHART), "--destination", str(tmp_path)], check=True, capture_output=True)
    with tarfile.open(tmp_path / f"fleetlight-{version}.tgz") as package:
        rules = package.extractfile("fleetlight/files/alerts.yml")
        assert rules is not None
        assert rules.read() == (CHECKOUT / "deploy" / "prometheus" / "alerts.yml").read_bytes()
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == version


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "settings.api.auth: say basic or keystone"),
        (changed(settings__api__auth="none"), "none would believe every caller"),
        (changed(settings__api__auth="tokens"), "which pods do not share"),
        (changed(secrets={}), "secrets: api.watch_key is missing"),
        (changed(secrets={}, processes={"api": {"replicas": 1}}), "secrets: fleet.database_url is missing"),
        (changed(settings__index__backend="sqlite"), "say elasticsearch or opensearch"),
        (changed(processes={"scheduler": {"enabled": True}}), "scheduler"),
        (changed(secrets__password={"secret": "one", "key": "two"}), "password"),
        (changed(secrets={"fleet.database_url": "postgresql://in-plain-text"}), "fleet.database_url"),
        (changed(service={"port": 70000}), "port"),
    ],
)
def test_chart_refuses_what_cannot_work_and_says_what_would(values: Values, said: str, tmp_path: Path) -> None:
    done = helm("template", "site", str(CHART), values=values, folder=tmp_path)
    assert done.returncode == 1
    assert said in done.stderr

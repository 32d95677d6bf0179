"""docker-compose.yml and Dockerfile say nothing that this version does not understand. No Docker is needed to look."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from sqlalchemy.engine import make_url

from fleetlight.cli.app import app
from fleetlight.cli.settings import load_settings
from scripts.container_health import ANSWER_TIMEOUT_S
from tests.support.servers.composition import CHECKOUT, COMPOSE_FILE, SERVERS, services, substituted
from tests.support.servers.prometheus import EXAMPLE
from tests.support.session.product import FOLDERS, PROJECT

_SERVICES = services()
_OURS = [name for name, service in _SERVICES.items() if "build" in service]
_PROCESSES = {"api", "deliverer", "indexer", "relay", "worker"}
_ONCE = {"database", "cell1", "cell2"}


def test_every_process_of_production_is_there() -> None:
    assert set(_OURS) == _PROCESSES | _ONCE
    assert set(_SERVICES) - set(_OURS) == SERVERS


@pytest.mark.parametrize("name", _OURS)
def test_command_is_one_of_this_version(name: str) -> None:
    group: Any = typer.main.get_command(app)
    word, *arguments = [substituted(word) for word in _SERVICES[name]["command"]]
    command = group.commands[word].loaded()
    while hasattr(command, "commands"):
        word, *arguments = arguments
        command = command.commands[word]
    # Parses the options, and calls nothing.
    command.make_context(word, arguments)


@pytest.mark.parametrize("name", _OURS)
def test_settings_are_known_and_valid(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for variable, value in _SERVICES[name]["environment"].items():
        monkeypatch.setenv(variable, substituted(value))
    settings = load_settings(None, None)
    assert settings.index.backend == "elasticsearch"
    assert settings.fleet.database_url.get_secret_value().endswith("@postgresql/fleet")


@pytest.mark.parametrize("name", sorted(_PROCESSES | SERVERS))
def test_what_ends_is_started_again(name: str) -> None:
    assert _SERVICES[name]["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", sorted(_PROCESSES))
def test_process_that_hangs_is_ended_by_its_health_check(name: str) -> None:
    check = _SERVICES[name]["healthcheck"]
    assert float(check["timeout"].removesuffix("s")) > ANSWER_TIMEOUT_S
    # Below an init, a process can be killed from inside; the first process of a container cannot.
    assert _SERVICES[name]["init"] is True


@pytest.mark.parametrize("name", sorted(_PROCESSES))
def test_monitoring_is_reached_by_other_containers_and_by_nobody_else(name: str) -> None:
    variables = _SERVICES[name]["environment"]
    assert variables["FLEETLIGHT_MONITORING_HOST"] == "0.0.0.0"  # noqa: S104 -- of its container
    assert not [
        port for port in _SERVICES[name].get("ports", []) if port.endswith(variables["FLEETLIGHT_MONITORING_PORT"])
    ]
    jobs = yaml.safe_load(EXAMPLE.read_text())["scrape_configs"]
    [job] = [each for each in jobs if each["job_name"] == "fleetlight"]
    target = f"{name}:{variables['FLEETLIGHT_MONITORING_PORT']}"
    assert {"targets": [target], "labels": {"process": name}} in job["static_configs"]


def test_settings_for_tests_are_in_no_server_of_production() -> None:
    tests = yaml.safe_load((CHECKOUT / "docker-compose.tests.yml").read_text())["services"]
    assert tests.keys() == SERVERS | {"opensearch"}
    for name in SERVERS:
        service = tests[name]
        for variable, value in service.get("environment", {}).items():
            assert _SERVICES[name]["environment"].get(variable) != value
    assert "disk.threshold" not in COMPOSE_FILE.read_text()


def test_broker_has_what_making_accounts_needs() -> None:
    mounted = dict(volume.split(":")[:2] for volume in _SERVICES["rabbitmq"]["volumes"])
    assert mounted["./docker/rabbitmq-enabled-plugins"] == "/etc/rabbitmq/enabled_plugins"
    assert "rabbitmq_management" in (CHECKOUT / "docker" / "rabbitmq-enabled-plugins").read_text()


@pytest.mark.parametrize("name", sorted(_PROCESSES))
def test_process_is_watched_restarted_and_started_after_the_databases_are_ready(name: str) -> None:
    service = _SERVICES[name]
    assert service["healthcheck"]["test"][-1] == "/opt/fleetlight/health.py"
    assert service["restart"] == "unless-stopped"
    conditions = {other: wanted["condition"] for other, wanted in service["depends_on"].items()}
    assert {other for other, condition in conditions.items() if condition == "service_completed_successfully"} == _ONCE
    assert conditions.keys() <= _SERVICES.keys()


@pytest.mark.parametrize("name", _OURS)
def test_container_gets_no_privileges(name: str) -> None:
    service = _SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["read_only"] is True


def test_ports_are_published_on_the_loopback_address_alone() -> None:
    ports = [port for service in _SERVICES.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_each_cell_has_an_account_on_the_broker_that_reaches_nothing_of_the_others() -> None:
    mounted = [volume.split(":")[0] for volume in _SERVICES["rabbitmq"]["volumes"]]
    assert "./docker/rabbitmq.conf" in mounted
    assert "./docker/rabbitmq-definitions.json" in mounted
    made = json.loads((CHECKOUT / "docker" / "rabbitmq-definitions.json").read_text())
    reached = {
        user["name"]: [each["vhost"] for each in made["permissions"] if each["user"] == user["name"]]
        for user in made["users"]
    }
    urls = [make_url(_SERVICES[cell]["environment"]["FLEETLIGHT_CELL_TRANSPORT_URL"]) for cell in ("cell1", "cell2")]
    assert len({url.username for url in urls}) == len({url.database for url in urls}) == len(urls)
    assert [reached[str(url.username)] for url in urls] == [[url.database] for url in urls]
    passwords = {user["name"]: user["password"] for user in made["users"]}
    assert [passwords[str(url.username)] for url in urls] == [url.password for url in urls]
    assert {vhost["name"] for vhost in made["vhosts"]} == {"/", *(url.database for url in urls)}


def test_databases_of_all_addresses_are_made_by_the_first_start() -> None:
    made = set(re.findall(r"CREATE DATABASE (\w+);", (CHECKOUT / "docker" / "databases.sql").read_text()))
    texts = [substituted(value) for name in _OURS for value in _SERVICES[name]["environment"].values()]
    assert made == {found for text in texts for found in re.findall(r"postgresql://[^/]+/(\w+)", text)}


def test_image_runs_as_nobody_in_particular_and_copies_what_is_there() -> None:
    lines = (CHECKOUT / "Dockerfile").read_text().splitlines()
    words = [line.split() for line in lines if line and not line.startswith(("#", " "))]
    assert [line for line in words if line[0] == "USER"] == [["USER", "fleetlight"]]
    assert words[-2] == ["ENTRYPOINT", '["fleetlight"]']
    copied = [path for line in words if line[0] == "COPY" and "--from=build" not in line for path in line[1:-1]]
    assert [path for path in copied if not (CHECKOUT / path).exists()] == []
    needed = ["pyproject.toml", "hatch_build.py", "README.md", "LICENSE", *FOLDERS, *copied]
    assert set(needed).isdisjoint((CHECKOUT / ".dockerignore").read_text().split())


def test_image_itself_has_the_label_of_this_version_and_the_health_check_of_the_composition() -> None:
    text = (CHECKOUT / "Dockerfile").read_text().replace("\\\n", "")
    assert f'org.opencontainers.image.version="{PROJECT["project"]["version"]}"' in text
    found = re.search(r"HEALTHCHECK (.*?) +CMD (.*)", text)
    assert found is not None
    check = _SERVICES["api"]["healthcheck"]
    assert ["CMD", *json.loads(found[2])] == check["test"]
    given = dict(each.removeprefix("--").replace("-", "_").split("=") for each in found[1].split())
    assert given == {name: str(value) for name, value in check.items() if name != "test"}


def test_image_has_all_extras_of_servers_and_nothing_that_builds() -> None:
    text = (CHECKOUT / "Dockerfile").read_text()
    _, runtime = re.split(r"^FROM .* AS build$", text, flags=re.MULTILINE)[1].split("\nFROM ")
    assert "pip uninstall" in runtime
    assert "venv --without-pip /opt/fleetlight" in text
    assert not re.search(r"fleetlight/bin/pip", text)
    locked, developed = (locked_versions(name) for name in ("requirements-image.lock", "requirements-dev.lock"))
    assert locked.items() <= developed.items(), "what runs in production is what was tested"
    assert locked_versions("requirements.lock").keys() | {"pymysql", "keystonemiddleware"} <= locked.keys()
    assert {"pip", "hatchling", "wheel"} & locked.keys() == set()


def locked_versions(name: str) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)(?:\[.*\])?==([^ ;\\]+)", (CHECKOUT / name).read_text(), re.MULTILINE))


def test_every_image_that_others_make_is_said_by_its_digest() -> None:
    lines = (CHECKOUT / "Dockerfile").read_text().splitlines()
    bases = {line.split()[1] for line in lines if line.startswith("FROM ")}
    assert bases == {"$BASE"}, "what is copied from one stage to the next has to run there"
    images = [line.removeprefix("ARG BASE=") for line in lines if line.startswith("ARG BASE=")]
    images += [_SERVICES[name]["image"] for name in SERVERS]
    assert [image for image in images if not re.fullmatch(r"[a-z]+:[\w.-]+@sha256:[0-9a-f]{64}", image)] == []

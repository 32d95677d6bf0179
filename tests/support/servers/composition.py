"""docker-compose.yml without Docker: the same commands with the same environment, as processes of this machine.

What differs is what a container gives: names of hosts, and ports of its own. So addresses of the three servers lead to
those that the tests have, and each process serves its monitoring at another port.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import yaml
from sqlalchemy.engine import make_url
from typer.testing import CliRunner

from fleetlight.cli.app import app
from scripts.servers.process import free_port
from tests.support.waiting import wait_until

CHECKOUT = Path(__file__).resolve().parents[3]
COMPOSE_FILE = CHECKOUT / "docker-compose.yml"
SERVERS = {"elasticsearch", "rabbitmq", "postgresql"}

_COMPLETED = "service_completed_successfully"
_ENDS_WITHIN_S = 120


def substituted(text: str) -> str:
    """As docker compose reads it when no variable is set: `${NAME:-default}` is the default."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", str(text))


def services() -> dict[str, Any]:
    """The services of docker-compose.yml by name, with their defaults in place."""
    found: dict[str, Any] = yaml.safe_load(COMPOSE_FILE.read_text())["services"]
    return found


@dataclass
class Composition:
    """The services of docker-compose.yml that are ours. folder: of their logs, and where they are started.

    addresses: what stands in the file for a server, and where that is here. prefix: of the indexes.
    """

    folder: Path
    addresses: Mapping[str, str]
    prefix: str
    ports: dict[str, int] = field(default_factory=dict)
    _monitoring: dict[str, int] = field(default_factory=dict)
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @staticmethod
    def on(
        folder: Path, *, elasticsearch_url: str, amqp_url: str, new_database: Callable[[], str], prefix: str
    ) -> "Composition":
        addresses = {"http://elasticsearch:9200": elasticsearch_url}
        addresses |= {f"amqp://{cell}:{cell}@rabbitmq/{cell}": amqp_url for cell in ("cell1", "cell2")}
        for name in re.findall(r"CREATE DATABASE (\w+);", (CHECKOUT / "docker" / "databases.sql").read_text()):
            url = make_url(new_database()).set(drivername="postgresql")
            addresses[f"postgresql://postgres@postgresql/{name}"] = url.render_as_string(hide_password=False)
        return Composition(folder, addresses, prefix)

    def up(self) -> None:
        """`docker compose up --wait`: everything in the order of `depends_on`, each as soon as it may begin."""
        for name in self._in_order():
            if self._ends(name):
                self.run_once(name)
            else:
                self.start(name)
        for name in list(self._running):
            self.wait_until_healthy(name)

    def start(self, name: str) -> None:
        command = [*map(substituted, services()[name]["command"])]
        self._monitoring[name] = free_port()
        variables = {"FLEETLIGHT_MONITORING_PORT": str(self._monitoring[name])}
        if name == "api":
            self.ports[name] = free_port()
            variables["FLEETLIGHT_API_PORT"] = str(self.ports[name])
        with self.log(name).open("ab") as log:
            self._running[name] = subprocess.Popen(
                [sys.executable, "-m", "fleetlight.cli", *command],
                env=self._environment(name) | variables,
                cwd=self.folder,
                stdout=log,
                stderr=log,
            )

    def wait_until_healthy(self, name: str) -> None:
        """Until the health check of the file says so, which is run as it stands there, but for the port."""

        def is_healthy() -> bool:
            process = self._running[name]
            assert process.poll() is None, f"{name} has ended: {self.log(name).read_text()[-3000:]}"
            return subprocess.run(self._health_check(name), check=False, capture_output=True).returncode == 0

        wait_until(is_healthy, 240)

    def run_once(self, name: str) -> None:
        """A service that ends by itself, and has to end well."""
        result = subprocess.run(
            [sys.executable, "-m", "fleetlight.cli", *map(substituted, services()[name]["command"])],
            check=False,
            env=self._environment(name),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=_ENDS_WITHIN_S,
        )
        assert result.returncode == 0, f"{name}: {result.stdout}{result.stderr}"

    def run(self, name: str, *words: str) -> str:
        """`docker compose run NAME WORDS`, in this process: what it prints. It has to end well."""
        result = CliRunner().invoke(app, words, env=self._environment(name))
        assert result.exit_code == 0, f"{words}: {result.output}"
        return result.stdout

    def stop(self) -> dict[str, int]:
        """`docker compose stop`: the exit codes of what ran."""
        for process in self._running.values():
            process.terminate()
        return {name: process.wait(timeout=_ENDS_WITHIN_S) for name, process in self._running.items()}

    def kill(self) -> None:
        for process in self._running.values():
            process.kill()
            process.wait(timeout=_ENDS_WITHIN_S)

    def log(self, name: str) -> Path:
        return self.folder.parent / f"{name}.log"

    def _in_order(self) -> Iterator[str]:
        ours = services().keys() - SERVERS
        order = TopologicalSorter({name: services()[name]["depends_on"].keys() & ours for name in sorted(ours)})
        return iter(tuple(order.static_order()))

    def _ends(self, name: str) -> bool:
        """Whether others wait until it has ended."""
        conditions = [service.get("depends_on", {}).get(name, {}) for service in services().values()]
        return any(wanted.get("condition") == _COMPLETED for wanted in conditions)

    def _environment(self, service: str) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("FLEETLIGHT_")}
        ours = {variable: self._translated(value) for variable, value in services()[service]["environment"].items()}
        # A one-off container has ports of its own.
        ours.pop("FLEETLIGHT_MONITORING_PORT", None)
        return inherited | ours | {"FLEETLIGHT_INDEX_PREFIX": self.prefix}

    def _translated(self, value: str) -> str:
        value = substituted(value)
        for written, here in self.addresses.items():
            value = value.replace(written, here)
        return value

    def _health_check(self, name: str) -> list[str]:
        assert services()[name]["healthcheck"]["test"] == ["CMD", "python", "/opt/fleetlight/health.py"]
        here = f"FLEETLIGHT_MONITORING_PORT={self._monitoring[name]}"
        return ["env", here, sys.executable, str(CHECKOUT / "scripts" / "container_health.py")]

"""The servers of docker-compose.yml as tests need them, each on a free port and in a compose project of its own."""

import os
import shutil
import subprocess

from scripts.servers.base import Server
from scripts.servers.errors import ServerError
from scripts.servers.folders import CHECKOUT, state_folder

_START_TIMEOUT_S = 600


def is_available() -> bool:
    """Whether there is a Docker daemon that answers, and the compose plugin."""
    if shutil.which("docker") is None:
        return False
    try:
        for command in (["docker", "info"], ["docker", "compose", "version"]):
            if subprocess.run(command, check=False, capture_output=True, timeout=10).returncode != 0:
                return False
    except subprocess.TimeoutExpired:
        return False
    return True


def start(server: Server) -> int:
    """Start the container, wait until it is healthy, and return its port on the loopback address."""
    _compose(server, "up", "--detach", "--wait", server.NAME)
    address = _compose(server, "port", server.NAME, str(server.CONTAINER_PORT)).strip()
    return int(address.rpartition(":")[2])


def stop(server: Server) -> None:
    """Remove the container and its data."""
    _compose(server, "down", "--volumes")


def _compose(server: Server, *arguments: str) -> str:
    files = ("--file", "docker-compose.yml", "--file", "docker-compose.tests.yml")
    project = f"fleetlight-{state_folder().name}-{server.NAME}"
    command = ["docker", "compose", *files, "--project-name", project, *arguments]
    # Port 0 in docker-compose.yml: Docker takes a free one.
    environment = {**os.environ, f"FLEETLIGHT_{server.NAME.upper()}_PORT": "0"}
    try:
        result = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            cwd=CHECKOUT,
            env=environment,
            timeout=_START_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise ServerError(server.NAME, f"`{' '.join(command)}` took longer than {_START_TIMEOUT_S} s") from None
    if result.returncode != 0:
        raise ServerError(server.NAME, f"`{' '.join(command)}` failed\n{result.stderr.strip()}")
    return result.stdout

"""The Debian package in a new Debian that systemd has booted: installed, used, upgraded, removed and purged."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from scripts.servers.process import free_port
from tests.support.loopback import get
from tests.support.session.product import ROOT
from tests.support.waiting import wait_until

# The package is made, and a system, which takes minutes.
pytestmark = [pytest.mark.night, pytest.mark.own_servers, pytest.mark.timeout(2400)]

_UNITS = ("api", "indexer", "relay", "worker", "deliverer")
_ENVIRONMENT = ("PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive")


def run(*command: str | Path) -> str:
    """What a command prints. Fails with what it says of a failure."""
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{command}: {ended.stdout[-3000:]}{ended.stderr[-3000:]}"
    return ended.stdout


class Machine:
    """A booted Debian in a folder, with the network of this machine."""

    def __init__(self, root: Path, log: Path) -> None:
        self.root = root
        with log.open("wb") as out:
            self._boot = subprocess.Popen(
                ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--boot", "--directory", str(root)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        self._first = wait_until(self._first_process, 60)
        wait_until(lambda: self.succeeds("systemctl", "is-active", "--quiet", "basic.target"), 60)

    def _first_process(self) -> str:
        children = Path(f"/proc/{self._boot.pid}/task/{self._boot.pid}/children").read_text().split()
        return next((pid for pid in children if Path(f"/proc/{pid}/comm").read_text() == "systemd\n"), "")

    def command(self, *words: str) -> list[str]:
        return [
            "nsenter",
            "--target",
            self._first,
            "--all",
            "--root",
            "env",
            "-i",
            "--chdir=/root",
            *_ENVIRONMENT,
            *words,
        ]

    def run(self, *words: str) -> str:
        return run(*self.command(*words))

    def succeeds(self, *words: str) -> bool:
        return subprocess.run(self.command(*words), capture_output=True, check=False).returncode == 0

    def install(self, package: Path) -> None:
        shutil.copy(package, self.root / "root")
        # Nobody is asked: what dpkg does with an edited file is what it does by itself.
        self.run("apt-get", "install", "--yes", "-qq", "-o=Dpkg::Options::=--force-confdef", f"/root/{package.name}")

    def process_of(self, name: str) -> str:
        """The process of a unit; "0" if none runs."""
        return self.run("systemctl", "show", "--property=MainPID", "--value", f"fleetlight@{name}").strip()

    def end(self) -> None:
        self._boot.terminate()
        try:
            self._boot.wait(60)
        except subprocess.TimeoutExpired:
            self._boot.kill()
            self._boot.wait()


@pytest.fixture(scope="module")
def package() -> Path:
    run(ROOT / "scripts" / "debian")
    return max((ROOT / "dist").glob("fleetlight_*.deb"), key=os.path.getmtime)


@pytest.fixture(scope="module")
def machine(mmdebstrap: Path, package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    folder = tmp_path_factory.mktemp("debian")
    root = folder / "root"
    [codename] = [
        line.partition("=")[2] for line in Path("/etc/os-release").read_text().splitlines() if "CODENAME" in line
    ]
    # As a new installation is: systemd, and neither Python nor anything of ours.
    # What it mounts, such as our /dev/shm, ends with it: pytest removes old folders, and what is mounted in them, too.
    run("unshare", "--mount", mmdebstrap, "--quiet", "--variant=apt", "--include=systemd-sysv,dbus", codename, root)
    booted = Machine(root, folder / "boot.log")
    try:
        booted.run("apt-get", "update", "-qq")
        booted.install(package)
        yield booted
    finally:
        booted.end()
        shutil.rmtree(root)


def newer(package: Path, folder: Path) -> Path:
    """The same package with a higher version and another file of settings."""
    unpacked = folder / "unpacked"
    run("dpkg-deb", "--raw-extract", package, unpacked)
    control, settings = unpacked / "DEBIAN" / "control", unpacked / "etc" / "fleetlight" / "relay.env"
    version = run("dpkg-deb", "--field", package, "Version").strip()
    control.write_text(control.read_text().replace(f"Version: {version}", f"Version: {version}+1"))
    settings.write_text(settings.read_text() + "# of the new version\n")
    run("dpkg-deb", "--root-owner-group", "-Zzstd", "-z1", "--build", unpacked, folder / "newer.deb")
    return folder / "newer.deb"


def test_installed_program_runs_by_its_name_and_is_what_the_package_has(machine: Machine, package: Path) -> None:
    version = run("dpkg-deb", "--field", package, "Version").strip()
    assert machine.run("fleetlight", "--version") == f"fleetlight {version}\n"
    assert machine.run("dpkg", "--verify", "fleetlight") == ""
    programs = [path for path in (machine.root / "opt/fleetlight/bin").iterdir() if not path.is_symlink()]
    assert {path.read_text().splitlines()[0] for path in programs} == {"#!/opt/fleetlight/bin/python"}


def test_units_are_valid_and_nothing_was_started(machine: Machine) -> None:
    units = [f"fleetlight@{name}.service" for name in _UNITS]
    machine.run("systemd-analyze", "verify", *units, "fleetlight-doctor.timer", "fleetlight-verify.timer")
    assert [machine.process_of(name) for name in _UNITS] == ["0"] * len(_UNITS)
    assert [name for name in _UNITS if not machine.succeeds("id", f"fleetlight-{name}")] == []


def test_process_without_settings_is_not_started_again_and_again(machine: Machine) -> None:
    machine.run("systemctl", "start", "fleetlight@worker")
    status = ("systemctl", "show", "--property=ExecMainStatus,ActiveState,NRestarts", "fleetlight@worker")
    wait_until(lambda: "ActiveState=failed" in machine.run(*status))
    assert set(machine.run(*status).split()) == {"NRestarts=0", "ExecMainStatus=2", "ActiveState=failed"}


def test_whole_fleet_is_ready_by_one_command(machine: Machine) -> None:
    port = free_port()
    machine.run("systemd-run", "--unit=up", "--working-directory=/root", "fleetlight", "up", "--port", str(port))
    try:
        wait_until(lambda: is_ready(port), 60)
    finally:
        machine.run("systemctl", "stop", "up")


def is_ready(port: int) -> bool:
    try:
        return get(f"http://127.0.0.1:{port}/readyz", timeout_s=10).is_success
    except httpx.TransportError:
        return False


def test_upgrade_restarts_what_runs_and_keeps_settings_until_the_purge(
    machine: Machine, package: Path, tmp_path: Path
) -> None:
    settings, environment = (machine.root / "etc" / "fleetlight" / f"relay.{kind}" for kind in ("toml", "env"))
    settings.write_text('[fleet]\ndatabase_url = "sqlite:////var/lib/fleetlight/relay/fleet.db"\n')
    environment.write_text("FLEETLIGHT_MONITORING_PORT=0\n")
    machine.run("chown", "fleetlight-relay:", "/etc/fleetlight/relay.toml")
    # The relay waits for the tables of the fleet, and so runs.
    machine.run("systemctl", "enable", "--now", "fleetlight@relay")
    before = wait_until(lambda: (pid := machine.process_of("relay")) != "0" and pid)

    machine.install(newer(package, tmp_path))
    assert machine.process_of("relay") not in ("0", before)
    assert machine.process_of("api") == "0"
    assert environment.read_text() == "FLEETLIGHT_MONITORING_PORT=0\n"
    assert "of the new version" in environment.with_suffix(".env.dpkg-dist").read_text()

    machine.run("apt-get", "remove", "--yes", "-qq", "fleetlight")
    assert not machine.succeeds("systemctl", "is-active", "--quiet", "fleetlight@relay")
    assert not (machine.root / "opt" / "fleetlight").exists()
    assert settings.exists()
    assert environment.exists()
    assert (machine.root / "var" / "lib" / "fleetlight" / "relay").exists()

    machine.run("apt-get", "purge", "--yes", "-qq", "fleetlight")
    assert machine.run("find", "/etc", "/usr", "/run/systemd", "-name", "*fleetlight*") == ""
    assert not (machine.root / "var" / "lib" / "fleetlight").exists()
    assert machine.succeeds("id", "fleetlight-relay")

    machine.run("mkdir", "--parents", "/opt")
    machine.run("ln", "-s", "/srv", "/opt/fleetlight")
    refused = subprocess.run(
        machine.command("dpkg", "--install", f"/root/{package.name}"), capture_output=True, check=False
    )
    assert b"/opt/fleetlight is a link to an installation by hand: remove the link" in refused.stderr
    assert machine.run("ls", "/srv") == ""

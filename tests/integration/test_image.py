"""The image of the Dockerfile: built by buildah over a base of Debian's packages, and run by systemd-nspawn.

The base has what the one named in the Dockerfile has: Debian 12, and a Python with pip in /usr/local.
"""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_debian_package import run
from tests.support.session.product import PROJECT, ROOT
from tests.support.waiting import wait_until

# A Debian is made, and the image twice: libraries, and the program.
pytestmark = [pytest.mark.night, pytest.mark.own_servers, pytest.mark.timeout(2400)]

_USER = 10001
_AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
_BASE = f"""FROM scratch
ADD base.tar /
RUN python3 -m venv /usr/local
ENV PIP_CERT={_AUTHORITIES} NODE_EXTRA_CA_CERTS={_AUTHORITIES}
"""
_API = "http://127.0.0.1:8774"
_ASK = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=20).read().decode())"


class Image:
    """An image in a storage of its own below `folder`, and its files in `root`."""

    def __init__(self, folder: Path, base: Path) -> None:
        self._command = ("buildah", "--storage-driver=vfs", f"--root={folder}/storage", f"--runroot={folder}/run")
        shutil.copy(base, folder / "base.tar")
        (folder / "Base").write_text(_BASE)
        build = ["bud", "--quiet", "--isolation=chroot", "--format=docker", "--network=host"]
        # So pip and npm reach what they reach outside of it.
        for path in ("/etc/ssl/certs", "/etc/pip.conf"):
            build += [f"--volume={path}:{path}:ro"] if Path(path).exists() else []
        self._run(*build, "--tag=base", "--file", f"{folder}/Base", str(folder))
        self._run(*build, "--tag=fleetlight", "--build-arg=BASE=localhost/base", "--build-arg=REVISION=abc", str(ROOT))
        self.config: dict[str, Any] = json.loads(self._run("inspect", "--type=image", "fleetlight"))["Docker"]["config"]
        self.root = Path(self._run("mount", self._run("from", "fleetlight").strip()).strip())

    def _run(self, *words: str) -> str:
        return run(*self._command, *words)

    def container(self, data: Path, *words: str) -> list[str]:
        """The command of a container without privileges, which writes to `data` and /tmp alone."""
        entrypoint: list[str] = self.config["Entrypoint"]
        return [
            "systemd-nspawn",
            "--quiet",
            "--register=no",
            "--keep-unit",
            "--timezone=off",
            "--resolv-conf=off",
            "--link-journal=no",
            "--as-pid2",
            "--read-only",
            "--private-network",
            "--drop-capability=all",
            "--no-new-privileges=yes",
            "--tmpfs=/tmp",
            f"--bind={data}:{self.config['WorkingDir']}",
            f"--user={self.config['User']}",
            *(f"--setenv={variable}" for variable in self.config["Env"]),
            f"--chdir={self.config['WorkingDir']}",
            f"--directory={self.root}",
            *entrypoint,
            *words,
        ]


@pytest.fixture(scope="module")
def image(mmdebstrap: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    folder = tmp_path_factory.mktemp("image")
    base = folder / "debian.tar"
    # As in test_debian_package: what it mounts ends with it.
    run(
        "unshare",
        "--mount",
        mmdebstrap,
        "--quiet",
        "--variant=apt",
        "--include=python3-venv,ca-certificates",
        "bookworm",
        base,
    )
    yield Image(folder, base)
    shutil.rmtree(folder)


class Container:
    """`fleetlight up` in a container."""

    def __init__(self, image: Image, folder: Path) -> None:
        self._image = image
        data = folder / "data"
        data.mkdir()
        os.chown(data, _USER, _USER)
        self._log = folder / "up.log"
        with self._log.open("wb") as out:
            self._nspawn = subprocess.Popen(
                image.container(data, "up", "--auth", "none"), stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        # Below the init of the container.
        self.process = wait_until(lambda: self._below(self._below(str(self._nspawn.pid))), 60)

    def _below(self, pid: str) -> str:
        children = Path(f"/proc/{pid}/task/{pid}/children")
        return children.read_text().split(maxsplit=1)[0] if pid and children.exists() and children.read_text() else ""

    def command(self, *words: str) -> list[str]:
        """A further command in it, as the user of the image: what `docker exec` does."""
        enter = ["nsenter", "--target", self.process, "--all", "--root", "--wd"]
        user = ["setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups"]
        return [*enter, *user, "env", "-i", *self._image.config["Env"], *words]

    def succeeds(self, *words: str) -> bool:
        return subprocess.run(self.command(*words), capture_output=True, check=False).returncode == 0

    def stop(self) -> str:
        """Ask it to end as `docker stop` does. Returns what it printed."""
        os.kill(int(self.process), signal.SIGTERM)
        assert self._nspawn.wait(60) == 0, self._log.read_text()
        return self._log.read_text()

    def end(self) -> None:
        self._nspawn.kill()
        self._nspawn.wait()


def test_whole_fleet_runs_as_nobody_in_particular_without_writing_to_the_image(image: Image, tmp_path: Path) -> None:
    container = Container(image, tmp_path)
    try:
        # What the image itself says of its health.
        check = image.config["Healthcheck"]["Test"]
        assert check[0] == "CMD"
        wait_until(lambda: container.succeeds(*check[1:]), 60)
        wait_until(lambda: container.succeeds("python", "-c", _ASK, f"{_API}/readyz"), 60)
        assert json.loads(run(*container.command("python", "-c", _ASK, f"{_API}/v2.1/servers"))) == {"servers": []}
        status = Path(f"/proc/{container.process}/status").read_text().splitlines()
        figures = {name: value.split() for name, _, value in (line.partition(":") for line in status)}
        assert figures["Uid"] == [str(_USER)] * 4
        assert (figures["CapBnd"], figures["NoNewPrivs"]) == (["0" * 16], ["1"])
        for folder in ("/", "/etc", "/opt/fleetlight"):
            assert not container.succeeds("touch", f"{folder}/x")
        container.stop()
    finally:
        container.end()


def test_nothing_is_inside_that_installs_or_builds(image: Image) -> None:
    programs = {path.name for folder in _folders_of_programs(image) for path in folder.iterdir()}
    assert "fleetlight" in programs
    assert [name for name in programs if name.startswith(("pip", "easy_install", "wheel", "hatch", "npm", "gcc"))] == []
    modules = ["pip", "ensurepip", "wheel", "hatchling", "cyclonedx_py"]
    # A library needs setuptools as it runs (pbr): the Python of the base has none.
    for python, missing in (("/usr/local", [*modules, "setuptools"]), ("/opt/fleetlight", modules)):
        code = f"import importlib.util as u; print(*filter(u.find_spec, {missing}))"
        assert run("chroot", image.root, f"{python}/bin/python", "-c", code) == "\n"


def _folders_of_programs(image: Image) -> list[Path]:
    [path] = [value for name, _, value in (each.partition("=") for each in image.config["Env"]) if name == "PATH"]
    return [folder for each in path.split(":") if (folder := image.root / each.lstrip("/")).is_dir()]


def test_labels_say_what_the_image_is(image: Image) -> None:
    labels = {name.removeprefix("org.opencontainers.image."): value for name, value in image.config["Labels"].items()}
    project = PROJECT["project"]
    assert labels["title"] == "Fleetlight"
    assert (labels["version"], labels["licenses"]) == (project["version"], project["license"])
    assert labels["revision"] == "abc"


def test_bill_of_materials_names_every_library_inside(image: Image) -> None:
    bill = json.loads((image.root / "opt/fleetlight/sbom.cdx.json").read_text())
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "fleetlight")
    listed = {component["purl"] for component in bill["components"]}
    code = "from importlib.metadata import distributions as d; print(*(f'{i.name}@{i.version}' for i in d()))"
    installed = run("chroot", image.root, "/opt/fleetlight/bin/python", "-c", code).split()
    assert {purl.removeprefix("pkg:pypi/") for purl in listed} == {
        each.lower().replace("_", "-") for each in installed if not each.startswith("fleetlight@")
    }

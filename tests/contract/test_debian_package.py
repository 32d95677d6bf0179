"""What the Debian package is made of (deploy/debian) is well formed, and is of the processes that there are.

tests/integration/test_debian_package.py makes and installs it.
"""

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.servers.composition import CHECKOUT
from tests.support.session.product import PROJECT

_FOLDER = CHECKOUT / "deploy" / "debian"
_SCRIPTS = ("postinst", "prerm", "postrm")
_PLACEHOLDERS = {"VERSION": "0.1.0", "ARCHITECTURE": "amd64", "PYTHON": "python3 (>= 3.11)", "SIZE": "1"}


@pytest.fixture
def control(mmdebstrap: Path, tmp_path: Path) -> dict[str, str]:
    """The fields of an empty package that dpkg-deb has made with our control file and scripts."""
    made = tmp_path / "root" / "DEBIAN"
    made.mkdir(parents=True, mode=0o755)
    text = (_FOLDER / "control").read_text()
    for name, value in _PLACEHOLDERS.items():
        text = text.replace(f"@{name}@", value)
    (made / "control").write_text(text)
    for name in _SCRIPTS:
        (made / name).write_bytes((_FOLDER / name).read_bytes())
        (made / name).chmod(0o755)
    package = tmp_path / "made.deb"
    for command in (["--root-owner-group", "--build", str(made.parent), str(package)], ["--field", str(package)]):
        ended = subprocess.run(["dpkg-deb", *command], capture_output=True, text=True, check=False)
        assert (ended.returncode, ended.stderr) == (0, "")
    return dict(re.findall(r"^([A-Z][\w-]*): (.*)$", ended.stdout, re.MULTILINE))


def test_control_file_is_one_for_dpkg(control: dict[str, str]) -> None:
    wanted = {"Package", "Version", "Architecture", "Maintainer", "Installed-Size", "Depends", "Section", "Description"}
    assert wanted <= control.keys()
    assert control["Package"] == PROJECT["project"]["name"]
    assert len(control["Description"]) <= 80
    assert not control["Description"].startswith(("a ", "an ", "the ")), "as Debian's policy wants it"


def test_every_placeholder_is_filled_in_by_the_script() -> None:
    found = set(re.findall(r"@(\w+)@", (_FOLDER / "control").read_text()))
    assert found == set(re.findall(r"s/@(\w+)@", (CHECKOUT / "scripts" / "debian").read_text())) == set(_PLACEHOLDERS)


def test_users_of_the_package_are_those_that_are_made_by_hand() -> None:
    """tests/contract/test_systemd_units.py compares those with the units."""
    made = re.findall(
        r"^u fleetlight-(\w+) - \".+\" /var/lib/fleetlight/(\w+)$", (_FOLDER / "sysusers.conf").read_text(), re.M
    )
    documented = (CHECKOUT / "docs" / "operations" / "without-docker.md").read_text(encoding="utf-8")
    by_hand = re.search(r"^# for name in (.+); do\n>   useradd", documented, re.MULTILINE)
    assert by_hand
    assert {name for name, _ in made} == set(by_hand[1].split())
    assert [name for name, home in made if name != home] == []


def test_environment_of_a_process_says_nothing_until_it_is_edited() -> None:
    lines = (_FOLDER / "process.env").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == []


@pytest.mark.parametrize("name", _SCRIPTS)
def test_script_of_the_package_is_valid_and_ends_at_the_first_failure(name: str) -> None:
    script = _FOLDER / name
    assert script.stat().st_mode & 0o111
    assert script.read_text().startswith("#!/bin/sh\n")
    assert "\nset -e\n" in script.read_text()
    subprocess.run(["sh", "-n", str(script)], check=True)

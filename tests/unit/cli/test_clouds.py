"""clouds.yaml of `fleetlight up`: what it says for each way to log in, and when a user gets a new password."""

import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetlight.cli.clouds import ADMIN, MEMBER, is_for, renew_password, write_clouds, write_open_clouds
from fleetlight.cli.data_folder import DataFolder

HERE, THERE = "http://127.0.0.1:8774", "http://127.0.0.1:8775"
PASSWORDS = {ADMIN: "first", MEMBER: "other"}


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    return DataFolder(tmp_path)


def clouds(folder: DataFolder) -> dict[str, Any]:
    assert stat.S_IMODE(folder.clouds_file.stat().st_mode) == 0o600
    found: dict[str, Any] = yaml.safe_load(folder.clouds_file.read_text())["clouds"]
    return found


def test_api_without_logins_is_named_with_its_endpoint(folder: DataFolder) -> None:
    for address in (HERE, THERE):
        assert write_open_clouds(folder, address)
        assert clouds(folder) == {"fleetlight": {"auth_type": "none", "auth": {"endpoint": f"{address}/v2.1"}}}
    assert (is_for(folder, "none"), is_for(folder, "tokens")) == (True, False)


_OTHER = """\
  other:
    auth_type: none
    region_name: far
    auth:
      auth_url: https://other.example.org/identity
      endpoint: https://other.example.org/v2.1
"""


@pytest.mark.parametrize("is_open", [True, False])
def test_clouds_that_are_not_ours_stay_as_they_are(folder: DataFolder, *, is_open: bool) -> None:
    def start(address: str, passwords: dict[str, str]) -> None:
        if is_open:
            write_open_clouds(folder, address)
        else:
            write_clouds(folder, address, "RegionOne", passwords)

    start(HERE, PASSWORDS)
    ours = folder.clouds_file.read_text()
    other = _OTHER if is_open else _OTHER.replace("    auth_type: none\n", "")
    folder.clouds_file.write_text(ours.replace("clouds:\n", f"clouds:\n{other}") + other.replace("other:", "last:"))
    before = clouds(folder)
    start(THERE, {})
    after = clouds(folder)
    assert {name: after[name] for name in ("other", "last")} == {name: before[name] for name in ("other", "last")}
    assert HERE not in folder.clouds_file.read_text()
    assert folder.clouds_file.read_text().replace(THERE, HERE).count(HERE) == ours.count(HERE)


def test_passwords_are_not_lost_to_a_start_without_logins(folder: DataFolder) -> None:
    write_clouds(folder, HERE, "RegionOne", PASSWORDS)
    before = folder.clouds_file.read_text()
    assert not write_open_clouds(folder, THERE)
    assert folder.clouds_file.read_text() == before
    assert (is_for(folder, "none"), is_for(folder, "tokens")) == (False, True)


def test_logins_take_the_place_of_an_open_api(folder: DataFolder) -> None:
    write_open_clouds(folder, HERE)
    write_clouds(folder, THERE, "RegionOne", {})
    assert clouds(folder)["fleetlight"]["auth"]["auth_url"] == f"{THERE}/identity"


def test_new_password_reaches_the_logins_of_its_user_alone(folder: DataFolder) -> None:
    assert renew_password(folder, ADMIN, "new") is None, "there is no file"
    write_clouds(folder, HERE, "RegionOne", PASSWORDS)
    assert renew_password(folder, "ada", "new") is None
    assert renew_password(folder, ADMIN, 'a "new" \\1 one: #1') is True
    found = clouds(folder)
    assert found["fleetlight"]["auth"]["password"] == 'a "new" \\1 one: #1'
    assert found["fleetlight-demo"]["auth"]["password"] == "other"


def test_login_that_was_written_in_another_way_is_told_to_be_old(folder: DataFolder) -> None:
    folder.clouds_file.write_text("clouds:\n  mine:\n    auth:\n      password: old\n      username: 'admin'\n")
    before = folder.clouds_file.read_text()
    assert renew_password(folder, ADMIN, "new") is False
    assert folder.clouds_file.read_text() == before

"""Writes clouds.yaml in the folder of `fleetlight up`, so that OpenStack's clients find the API and log in."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from fleetlight.cli.data_folder import DataFolder

PROJECT = "demo"
ADMIN, MEMBER = "admin", "demo"
_CLOUDS = {"fleetlight": ADMIN, "fleetlight-demo": MEMBER}
_KEY = re.compile(r"( +)([\w.-]+):")
_OPEN = "auth_type: none"


def write_clouds(folder: DataFolder, address: str, region: str, passwords: Mapping[str, str]) -> None:
    """Write clouds.yaml for an API at `address`. In an existing file only the addresses of our clouds change.

    passwords: of users that were just created. They are in no other file, and only the owner can read this one.
    """
    auth_url = f"{address}/identity"
    text = _read(folder.clouds_file)
    if text is None or passwords or _OPEN in text:
        _write(folder.clouds_file, _clouds(auth_url, region, passwords))
    else:
        _write(folder.clouds_file, _with_address(text, "auth_url", auth_url))


def write_open_clouds(folder: DataFolder, address: str) -> bool:
    """Write clouds.yaml for an API at `address` that needs no login, or update the address in such a file.

    Returns False if the file has passwords; it then stays as it is.
    """
    text = _read(folder.clouds_file)
    if text is not None and "password:" in text:
        return False
    if text is not None and _OPEN in text:
        _write(folder.clouds_file, _with_address(text, "endpoint", f"{address}/v2.1"))
        return True
    lines = (
        "# For OpenStack's clients; written by `fleetlight up --auth none`, which keeps the endpoint up to date.",
        "clouds:",
        "  fleetlight:",
        f"    {_OPEN}",
        "    auth:",
        f"      endpoint: {address}/v2.1",
    )
    _write(folder.clouds_file, "\n".join(lines) + "\n")
    return True


def is_for(folder: DataFolder, auth: str) -> bool:
    """Whether clients can use clouds.yaml while the API authenticates by `auth`."""
    text = _read(folder.clouds_file)
    return text is not None and {"none": _OPEN in text, "tokens": _OPEN not in text}.get(auth, False)


def renew_password(folder: DataFolder, user: str, password: str) -> bool | None:
    """Write the new password of `user` to clouds.yaml. Returns None if the file has no login of that user.

    Returns False if it has one in another layout than ours, which keeps the old password.
    """
    text = _read(folder.clouds_file)
    if text is None or not re.search(rf"^\s*username:\s*[\"']?{re.escape(user)}[\"']?\s*$", text, re.MULTILINE):
        return None
    ours = re.compile(rf"^(\s*)(username: {re.escape(user)}\n)\s*password: .*$", re.MULTILINE)
    renewed, count = ours.subn(lambda found: f"{found[1]}{found[2]}{found[1]}password: {json.dumps(password)}", text)
    if count:
        _write(folder.clouds_file, renewed)
    return bool(count)


def _with_address(text: str, key: str, address: str) -> str:
    """Set `key` to this address in each of our clouds, by name, and leave the rest of the text as it is."""
    lines, indent, cloud = [], None, None
    for line in text.splitlines(keepends=True):
        found = _KEY.match(line)
        if found is not None:
            indent = indent or found[1]  # the first key is the name of a cloud
            if found[1] == indent:
                cloud = found[2]
            elif found[2] == key and cloud in _CLOUDS:
                line = f"{found[0]} {address}\n"  # noqa: PLW2901
        lines.append(line)
    return "".join(lines)


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def _write(path: Path, text: str) -> None:
    """Replace the file if its text changes."""
    if _read(path) == text:
        return
    new = path.with_name(path.name + ".new")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(new, path)


def _clouds(auth_url: str, region: str, passwords: Mapping[str, str]) -> str:
    """The text of clouds.yaml. JSON quotes its strings, since YAML reads those the same way."""
    lines = [
        "# Logins for OpenStack's clients; written by `fleetlight up`, which keeps auth_url up to date.",
        "clouds:",
    ]
    for cloud, user in _CLOUDS.items():
        lines += [
            f"  {cloud}:",
            "    auth_type: password",
            "    auth:",
            f"      auth_url: {auth_url}",
            f"      username: {user}",
            *([f"      password: {json.dumps(passwords[user])}"] if user in passwords else []),
            f"      project_name: {PROJECT}",
            "      user_domain_name: Default",
            "      project_domain_name: Default",
            f"    region_name: {json.dumps(region)}",
        ]
    return "\n".join(lines) + "\n"

"""The users that `fleetlight up` begins with, and the file that lets OpenStack's clients log in as them."""

import json
import os
import re
from collections.abc import Mapping, Sequence

from api.identity.passwords import hash_password
from api.identity.tokens.directory import Directory, Project, User, new_id
from api.identity.tokens.directory_file import DirectoryFile
from cli.data_folder import DataFolder
from cli.passwords import new_password

PROJECT = "demo"
ADMIN, MEMBER = "admin", "demo"
_ROLES = {ADMIN: "admin", MEMBER: "member"}
_CLOUDS = {"fleetlight": ADMIN, "fleetlight-demo": MEMBER}
_AUTH_URL = re.compile(r"^(\s*auth_url:).*$", re.MULTILINE)


def set_up_users(folder: DataFolder, projects: Sequence[str]) -> Mapping[str, str]:
    """Make the users on the first start; returns their passwords by name, or nothing when there are users already.

    projects: ids of others than the users' own, to be there too.
    """
    if folder.identity_file.exists():
        return {}
    passwords = {name: new_password() for name in _ROLES}
    hashes = {name: hash_password(password) for name, password in passwords.items()}

    def change(directory: Directory) -> Directory:
        for name in dict.fromkeys((PROJECT, *projects)):
            directory = directory.with_project(Project(id=name, name=name))
        for name, role in _ROLES.items():
            user = User(id=new_id(), name=name, password_hash=hashes[name], default_project_id=PROJECT)
            directory = directory.with_new_user(user).with_role(user, directory.projects[PROJECT], role)
        return directory

    DirectoryFile(folder.identity_file).change(change, create=True)
    return passwords


def write_clouds(folder: DataFolder, address: str, region: str, passwords: Mapping[str, str]) -> None:
    """Write clouds.yaml for an API at `address`; one that is there only gets the address.

    passwords: of the users who were just made. They are in this file alone, and only its owner can read it.
    """
    path = folder.clouds_file
    auth_url = f"{address}/identity"
    if path.exists() and not passwords:
        text = path.read_text(encoding="utf-8")
        content = _AUTH_URL.sub(lambda found: f"{found[1]} {auth_url}", text)
        if content == text:
            return
    else:
        content = _clouds(auth_url, region, passwords)
    new = path.with_name(path.name + ".new")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(content)
    os.replace(new, path)


def _clouds(auth_url: str, region: str, passwords: Mapping[str, str]) -> str:
    """A double-quoted string means the same in YAML as in JSON."""
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

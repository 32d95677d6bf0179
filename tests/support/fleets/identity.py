"""A small directory of users for tests of logins; its passwords are hashed as weakly as argon2 can, for speed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from argon2 import PasswordHasher

from fleetlight.api.caller import Caller
from fleetlight.api.http.connection import ClientConnection
from fleetlight.api.identity.browser import Account, BrowserLogin
from fleetlight.api.identity.tokens.directory import Directory, Project, User
from fleetlight.api.identity.tokens.directory_file import DirectoryFile

PASSWORD = "correct horse"
DEMO, OTHER = "demo", "7a2f4e1d9c5b4b0f8e6d3c2b1a09f8e7"
# name -> role in project demo; the ids are the names with "id-" before them
USERS = {"ada": "admin", "mia": "manager", "bob": "member", "rita": "reader"}
_hasher = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


class ProgramsOnly:
    """What a strategy of identity has for browsers, of one at which none logs in."""

    logins: Sequence[str] = ()

    async def begin_session(self, login: BrowserLogin, connection: ClientConnection) -> str:
        raise NotImplementedError

    async def change_project(self, session: str, project: str) -> str:
        raise NotImplementedError

    async def end_session(self, session: str) -> None:
        raise NotImplementedError

    async def account(self, caller: Caller, headers: Mapping[str, str]) -> Account:
        raise NotImplementedError


def weak_hash(password: str) -> str:
    return _hasher.hash(password)


def write_directory(path: Path) -> DirectoryFile:
    """Users with a role each in project demo, one (zoe) without any, and ada in the other project too."""

    def change(directory: Directory) -> Directory:
        for identifier, name in ((DEMO, "demo"), (OTHER, "other")):
            directory = directory.with_project(Project(id=identifier, name=name))
        for name in (*USERS, "zoe"):
            user = User(id=f"id-{name}", name=name, password_hash=weak_hash(PASSWORD))
            directory = directory.with_new_user(user)
            if name in USERS:
                directory = directory.with_role(user, directory.projects[DEMO], USERS[name])
        return directory.with_role(directory.users["id-ada"], directory.projects[OTHER], "admin")

    file = DirectoryFile(path)
    file.change(change, create=True)
    return file


def password_login(name: str, password: str = PASSWORD, scope: object = None) -> dict[str, Any]:
    """The body of a login by name; scope: as it is sent, None for none."""
    user = {"name": name, "domain": {"name": "Default"}, "password": password}
    return login("password", {"user": user}, scope)


def login(method: str, content: Mapping[str, object], scope: object = None) -> dict[str, Any]:
    auth: dict[str, Any] = {"identity": {"methods": [method], method: content}}
    return {"auth": auth if scope is None else auth | {"scope": scope}}


def project_scope(name: str = "demo") -> dict[str, Any]:
    return {"project": {"name": name, "domain": {"id": "default"}}}

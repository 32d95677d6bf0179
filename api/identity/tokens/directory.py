"""The directory of the embedded identity service: users, projects, roles and application credentials.

These are immutable values; a change makes a new directory. There is one domain, `default`.
"""

import secrets
from collections.abc import Collection, Mapping
from typing import Any
from uuid import uuid4

import msgspec

from fleetlight.api.caller import ROLES, with_implied
from fleetlight.api.http.errors import DirectoryError, TooManyCredentialsError, UnknownInDirectoryError

DOMAIN_ID = "default"
DOMAIN_NAME = "Default"
_KEY_BYTES = 32
MOST_REVOKED = 200


class Project(msgspec.Struct, frozen=True):
    id: str
    name: str
    description: str = ""
    enabled: bool = True


class User(msgspec.Struct, frozen=True):
    """A user. password_hash: argon2. roles: by project id. valid_from: tokens issued before are void; microseconds
    since the epoch. revoked: by audit id, the expiry of each revoked token of the user; at most MOST_REVOKED.
    """

    id: str
    name: str
    password_hash: str
    enabled: bool = True
    default_project_id: str | None = None
    roles: Mapping[str, tuple[str, ...]] = {}
    valid_from: int = 0
    revoked: Mapping[str, int] = {}


class Credential(msgspec.Struct, frozen=True):
    """An application credential: a login of `user_id` for one project with some of the user's roles.

    expires_at: microseconds since the epoch; None: never.
    """

    id: str
    name: str
    secret_hash: str
    user_id: str
    project_id: str
    roles: tuple[str, ...]
    description: str = ""
    expires_at: int | None = None


class Directory(msgspec.Struct, frozen=True):
    """The directory. Its mappings are by id.

    signing_key: key that signs tokens; hexadecimal.
    """

    signing_key: str
    projects: Mapping[str, Project] = {}
    users: Mapping[str, User] = {}
    credentials: Mapping[str, Credential] = {}

    @classmethod
    def empty(cls) -> "Directory":
        return cls(signing_key=secrets.token_hex(_KEY_BYTES))

    def user(self, name: str) -> User | None:
        return next((user for user in self.users.values() if user.name == name), None)

    def project(self, name: str) -> Project | None:
        return next((project for project in self.projects.values() if project.name == name), None)

    def credentials_of(self, user_id: str) -> list[Credential]:
        return [credential for credential in self.credentials.values() if credential.user_id == user_id]

    def roles_of(self, user: User, project: Project) -> frozenset[str]:
        """Return the roles of `user` in `project`, with implied ones; none if one of the two is disabled."""
        if not (user.enabled and project.enabled):
            return frozenset()
        return with_implied(frozenset(user.roles.get(project.id, ())))

    def named_user(self, name: str) -> User:
        """Return the user with this name or id. Raises UnknownInDirectoryError if there is none."""
        user = self.user(name) or self.users.get(name)
        if user is None:
            raise UnknownInDirectoryError(f"there is no user {name}")
        return user

    def named_project(self, name: str) -> Project:
        """Return the project with this name or id. Raises UnknownInDirectoryError if there is none."""
        project = self.project(name) or self.projects.get(name)
        if project is None:
            raise UnknownInDirectoryError(f"there is no project {name}")
        return project

    def with_project(self, project: Project) -> "Directory":
        """Add a project; raises DirectoryError when its name or id is taken."""
        if self.project(project.name) is not None or project.id in self.projects:
            raise DirectoryError(f"there is a project {project.name} already")
        return self._with("projects", project.id, project)

    def without_project(self, project: Project) -> "Directory":
        """Remove a project, the roles in it and the credentials for it."""
        users = {
            user.id: msgspec.structs.replace(
                user,
                roles=_without(user.roles, project.id),
                default_project_id=None if user.default_project_id == project.id else user.default_project_id,
            )
            for user in self.users.values()
        }
        credentials = {each.id: each for each in self.credentials.values() if each.project_id != project.id}
        projects = _without(self.projects, project.id)
        return msgspec.structs.replace(self, projects=projects, users=users, credentials=credentials)

    def with_new_user(self, user: User) -> "Directory":
        """Add a user; raises DirectoryError when the name or id is taken."""
        if self.user(user.name) is not None or user.id in self.users:
            raise DirectoryError(f"there is a user {user.name} already")
        return self.with_user(user)

    def with_user(self, user: User) -> "Directory":
        """Replace the user with the same id by `user`."""
        return self._with("users", user.id, user)

    def without_user(self, user: User) -> "Directory":
        """Remove a user and the credentials of the user."""
        credentials = {each.id: each for each in self.credentials.values() if each.user_id != user.id}
        return msgspec.structs.replace(self, users=_without(self.users, user.id), credentials=credentials)

    def with_role(self, user: User, project: Project, role: str) -> "Directory":
        """Give `user` a role in `project`; raises UnknownInDirectoryError when there is no such role."""
        require_roles(role)
        given = tuple(name for name in ROLES if name == role or name in user.roles.get(project.id, ()))
        return self.with_user(msgspec.structs.replace(user, roles={**user.roles, project.id: given}))

    def without_role(self, user: User, project: Project, role: str) -> "Directory":
        """Remove a role; raises DirectoryError when the role is unknown, or the user does not have it."""
        require_roles(role)
        given = user.roles.get(project.id, ())
        if role not in given:
            raise DirectoryError(f"user {user.name} has not the role {role} in project {project.name}")
        left = tuple(name for name in given if name != role)
        roles = {**user.roles, project.id: left} if left else _without(user.roles, project.id)
        return self.with_user(msgspec.structs.replace(user, roles=roles))

    def require_room_for_credential(self, user_id: str, limit: int) -> None:
        """Raise TooManyCredentialsError when the user has `limit` credentials already."""
        if len(self.credentials_of(user_id)) >= limit:
            raise TooManyCredentialsError(limit)

    def with_credential(self, credential: Credential) -> "Directory":
        """Add a credential; raises DirectoryError when the user has one of this name, and UnknownInDirectoryError when
        the user or the project does not exist any more.
        """
        if credential.user_id not in self.users or credential.project_id not in self.projects:
            raise UnknownInDirectoryError("the user or the project of the application credential is not there any more")
        if any(each.name == credential.name for each in self.credentials_of(credential.user_id)):
            raise DirectoryError(f"there is an application credential {credential.name} already")
        return self._with("credentials", credential.id, credential)

    def without_credential(self, credential: Credential) -> "Directory":
        return msgspec.structs.replace(self, credentials=_without(self.credentials, credential.id))

    def has_revoked(self, user_id: str, audit_ids: Collection[str]) -> bool:
        """Whether one of these tokens of a user is revoked."""
        user = self.users.get(user_id)
        return user is not None and any(each in user.revoked for each in audit_ids)

    def with_revoked(self, user_id: str, audit_id: str, expires_at: int, now: int) -> "Directory":
        """Revoke a token of a user, and forget revoked tokens that have expired.

        A user with more than MOST_REVOKED unexpired ones loses all tokens instead, so that no user can fill the file.
        """
        users = {
            user.id: msgspec.structs.replace(user, revoked=_later(user.revoked, now)) if user.revoked else user
            for user in self.users.values()
        }
        user = users.get(user_id)
        if user is not None and len(user.revoked) < MOST_REVOKED:
            users[user_id] = msgspec.structs.replace(user, revoked={**user.revoked, audit_id: expires_at})
        elif user is not None:
            users[user_id] = msgspec.structs.replace(user, revoked={}, valid_from=max(user.valid_from, now + 1))
        return msgspec.structs.replace(self, users=users)

    def _with(self, mapping: str, key: str, value: object) -> "Directory":
        return msgspec.structs.replace(self, **{mapping: {**getattr(self, mapping), key: value}})


def require_roles(*roles: str) -> None:
    """Raise UnknownInDirectoryError for an unknown role."""
    for role in roles:
        if role not in ROLES:
            raise UnknownInDirectoryError(f"there is no role {role}; the roles are {', '.join(ROLES)}")


def new_id() -> str:
    """Make an id in Keystone's form."""
    return uuid4().hex


def _later(times: Mapping[str, int], now: int) -> dict[str, int]:
    return {name: time for name, time in times.items() if time > now}


def _without(mapping: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {other: value for other, value in mapping.items() if other != key}

"""JSON forms of users, projects, roles, credentials and tokens (contracts/nova-rest, 5.2 and 5.4)."""

from typing import Any

from fleetlight.api.caller import ROLES
from fleetlight.api.identity.tokens import shapes
from fleetlight.api.identity.tokens.catalog import stable_id
from fleetlight.api.identity.tokens.directory import DOMAIN_ID, DOMAIN_NAME, Credential, Directory, Project, User
from fleetlight.api.identity.tokens.login import roles_of
from fleetlight.api.identity.tokens.token import Token
from fleetlight.resources.fields import from_microseconds

_MINOR = 1  # there are no microversions here
_DOMAIN = {"id": DOMAIN_ID, "name": DOMAIN_NAME}


def time(microseconds: int) -> str:
    return from_microseconds(microseconds).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def role_id(name: str) -> str:
    return stable_id("role", name)


def roles(names: frozenset[str]) -> list[dict[str, Any]]:
    return [{"id": role_id(name), "name": name} for name in ROLES if name in names]


class Views:
    """JSON forms for one answer. base: address of `/identity/v3`, for links."""

    def __init__(self, base: str) -> None:
        self.base = base

    def project(self, project: Project) -> dict[str, Any]:
        values = {
            "id": project.id,
            "name": project.name,
            "domain_id": DOMAIN_ID,
            "description": project.description,
            "enabled": project.enabled,
            "parent_id": DOMAIN_ID,
            "is_domain": False,
            "tags": [],
            "options": {},
            "links": self._self("projects", project.id),
        }
        return shapes.PROJECT.of(_MINOR, values)

    def user(self, user: User) -> dict[str, Any]:
        default = {} if user.default_project_id is None else {"default_project_id": user.default_project_id}
        values = {
            "id": user.id,
            "name": user.name,
            "domain_id": DOMAIN_ID,
            "enabled": user.enabled,
            "password_expires_at": None,
            "options": {},
            "links": self._self("users", user.id),
            **default,
        }
        return shapes.USER.of(_MINOR, values)

    def domain(self) -> dict[str, Any]:
        values = {
            **_DOMAIN,
            "description": "",
            "enabled": True,
            "tags": [],
            "options": {},
            "links": self._self("domains", DOMAIN_ID),
        }
        return shapes.DOMAIN.of(_MINOR, values)

    def role(self, name: str) -> dict[str, Any]:
        identifier = role_id(name)
        values = {
            "id": identifier,
            "name": name,
            "domain_id": None,
            "description": "",
            "options": {},
            "links": self._self("roles", identifier),
        }
        return shapes.ROLE.of(_MINOR, values)

    def assignment(self, user: User, project: Project, role: str, *, with_names: bool) -> dict[str, Any]:
        """Show one assigned role, without implied ones."""
        path = f"projects/{project.id}/users/{user.id}/roles/{role_id(role)}"
        names = (
            {"name": role},
            {"name": user.name, "domain": _DOMAIN},
            {"name": project.name, "domain": _DOMAIN},
        )
        of_role, of_user, of_project = names if with_names else ({}, {}, {})
        values = {
            "role": {"id": role_id(role), **of_role},
            "user": {"id": user.id, **of_user},
            "scope": {"project": {"id": project.id, **of_project}},
            "links": {"assignment": f"{self.base}/{path}"},
        }
        return shapes.ASSIGNMENT.of(_MINOR, values)

    def credential(self, credential: Credential) -> dict[str, Any]:
        """Show a credential without its secret, which only the answer to its creation has."""
        values = {
            "id": credential.id,
            "name": credential.name,
            "description": credential.description,
            "user_id": credential.user_id,
            "project_id": credential.project_id,
            "roles": roles(frozenset(credential.roles)),
            "expires_at": None if credential.expires_at is None else time(credential.expires_at),
            "unrestricted": False,
            "links": self._self(f"users/{credential.user_id}/application_credentials", credential.id),
        }
        return shapes.CREDENTIAL.of(_MINOR, values)

    def token(self, token: Token, directory: Directory) -> dict[str, Any]:
        """Show a token, without its catalog."""
        user = directory.users[token.user_id]
        view: dict[str, Any] = {
            "methods": token.methods,
            "user": {"id": user.id, "name": user.name, "domain": _DOMAIN, "password_expires_at": None},
            # Like Keystone, name only the token itself and the first login.
            "audit_ids": [token.audit_ids[0], *token.audit_ids[1:][-1:]],
            "issued_at": time(token.issued_at),
            "expires_at": time(token.expires_at),
        }
        if token.project_id is not None:
            project = directory.projects[token.project_id]
            view["project"] = {"id": project.id, "name": project.name, "domain": _DOMAIN}
            view["is_domain"] = False
            view["roles"] = roles(roles_of(directory, token))
        if token.credential_id is not None:
            credential = directory.credentials[token.credential_id]
            view["application_credential"] = {"id": credential.id, "name": credential.name, "restricted": True}
        return view

    def _self(self, collection: str, identifier: str) -> dict[str, str]:
        return {"self": f"{self.base}/{collection}/{identifier}"}

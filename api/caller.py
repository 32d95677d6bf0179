"""The caller of a request, and the interface of strategies of identity."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from fleetlight.api.http.connection import UNKNOWN, ClientConnection

# Each role implies the roles after it (contracts/nova-rest, section 7).
ROLES = ("admin", "manager", "member", "reader")


def with_implied(roles: frozenset[str]) -> frozenset[str]:
    """Return `roles` and the roles that they imply; an unknown role implies none."""
    highest = min((ROLES.index(role) for role in roles if role in ROLES), default=len(ROLES))
    return roles | frozenset(ROLES[highest:])


@dataclass(frozen=True, slots=True)
class Caller:
    """The user of a request, with its project and roles (`ROLES`, and others that no rule uses).

    project_id: None for a caller without a project, whose scope is only what belongs to the user.
    """

    user_id: str
    project_id: str | None
    roles: frozenset[str]

    @property
    def reader(self) -> str:
        """The key of the caller's own changes: its project, or the user without one."""
        return self.project_id or self.user_id

    @property
    def is_admin(self) -> bool:
        """Whether the rule `context_is_admin` holds: the role `admin`, in any project."""
        return "admin" in self.roles

    def may_see(self, project_id: str | None, user_id: str | None) -> bool:
        """Whether the caller may see items of this project and user; administrators see all."""
        if self.is_admin:
            return True
        return user_id == self.user_id if self.project_id is None else project_id == self.project_id

    def has_role(self, role: str) -> bool:
        """Whether the caller has `role`, itself or implied by another one."""
        return role in with_implied(self.roles)


class Identity(Protocol):
    """A strategy of authentication."""

    async def authenticate(self, headers: Mapping[str, str], connection: ClientConnection = UNKNOWN) -> Caller:
        """Find the caller of a request by its `headers` (names ignore case). connection: where it comes from.

        Raises UnauthorizedError, TooManyLoginsError, BadRequestError.
        """
        ...

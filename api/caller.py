"""The caller of a request as a value, and what a strategy of identity is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from fleetlight.api.http.connection import UNKNOWN, ClientConnection

# Each role implies those behind it (contracts/nova-rest, section 7).
ROLES = ("admin", "manager", "member", "reader")


def with_implied(roles: frozenset[str]) -> frozenset[str]:
    """`roles` and all that they imply; roles that are not ours stay, and imply nothing."""
    highest = min((ROLES.index(role) for role in roles if role in ROLES), default=len(ROLES))
    return roles | frozenset(ROLES[highest:])


@dataclass(frozen=True, slots=True)
class Caller:
    """The user of a request, with its project and roles (`ROLES`, and others, which mean nothing here).

    project_id: None when the caller has no project; only what belongs to the user is then in scope.
    """

    user_id: str
    project_id: str | None
    roles: frozenset[str]

    @property
    def reader(self) -> str:
        """The key under which the changes of the caller are remembered: its project, or the user without one."""
        return self.project_id or self.user_id

    @property
    def is_admin(self) -> bool:
        """Whether the rule `context_is_admin` holds: the role `admin`, in whatever project."""
        return "admin" in self.roles

    def may_see(self, project_id: str | None, user_id: str | None) -> bool:
        """Whether what belongs to that project and user is there for this caller: all of it for administrators."""
        if self.is_admin:
            return True
        return user_id == self.user_id if self.project_id is None else project_id == self.project_id

    def has_role(self, role: str) -> bool:
        """Whether the caller has `role`, itself or implied by another one."""
        return role in with_implied(self.roles)


class Identity(Protocol):
    """A strategy of authentication."""

    async def authenticate(self, headers: Mapping[str, str], connection: ClientConnection = UNKNOWN) -> Caller:
        """The caller of a request with these `headers` (names ignore case). connection: where it comes from.

        Raises UnauthorizedError, TooManyLoginsError, BadRequestError.
        """
        ...

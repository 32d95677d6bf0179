"""The caller of a request as a value, and what a strategy of identity is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is calling, for which project, with which roles (`admin`, `member`, `reader`).

    project_id: None when the caller has no project; only what belongs to the user is then in scope.
    """

    user_id: str
    project_id: str | None
    roles: frozenset[str]

    @property
    def is_admin(self) -> bool:
        """Whether the rule `context_is_admin` holds: the role `admin`, in whatever project."""
        return "admin" in self.roles


class Identity(Protocol):
    """A strategy of finding out who is calling."""

    async def authenticate(self, headers: Mapping[str, str]) -> Caller:
        """The caller of a request with these `headers` (names ignore case).

        Raises UnauthorizedError, BadRequestError.
        """
        ...

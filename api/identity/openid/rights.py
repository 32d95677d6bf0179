"""Rights of a user, from the claims of its ID token."""

import hashlib
from collections.abc import Mapping

import msgspec

from fleetlight.api.caller import ROLES
from fleetlight.api.settings import OpenIdSettings

Claims = Mapping[str, object]
_LONGEST = 255


class ClaimedProject(msgspec.Struct, frozen=True, array_like=True):
    """A project of a user. role: the highest, which implies the others. name: the project's, if it is not its id."""

    id: str
    role: str
    name: str = ""


class ClaimedRights(msgspec.Struct, frozen=True, array_like=True):
    """The rights of a user. user_id: unique over all providers, and different from ids of other strategies."""

    user_id: str
    user_name: str
    is_admin: bool
    projects: tuple[ClaimedProject, ...]


def rights_of(claims: Claims, settings: OpenIdSettings) -> ClaimedRights:
    """Read the rights from claims. claims: verified, so with `iss` and `sub`."""
    name, values = claims.get(settings.name_claim), _texts(claims.get(settings.projects_claim))
    return ClaimedRights(
        hashlib.sha256(f"{claims['iss']}\n{claims['sub']}".encode()).hexdigest()[:32],
        (name if isinstance(name, str) and name else f"{claims['sub']}")[:_LONGEST],
        settings.administrator is not None and settings.administrator in values,
        tuple(ClaimedProject(project, role) for project, role in sorted(_roles(values).items())),
    )


def _texts(claim: object) -> list[str]:
    """Return a claim as a list of texts, since a provider may send a single value without a list."""
    values = claim if isinstance(claim, list) else [claim]
    return [value for value in values if isinstance(value, str)]


def _roles(values: list[str]) -> dict[str, str]:
    """Return the highest role in each project."""
    found: dict[str, str] = {}
    for value in values:
        project, _, role = value.rpartition(":")
        if role in ROLES and 0 < len(project) <= _LONGEST:
            found[project] = min(role, found.get(project, role), key=ROLES.index)
    return found

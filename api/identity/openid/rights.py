"""What a user may do here, by the claims of its ID token."""

import hashlib
from collections.abc import Mapping

import msgspec

from fleetlight.api.caller import ROLES
from fleetlight.api.settings import OpenIdSettings

Claims = Mapping[str, object]
_LONGEST = 255


class ClaimedProject(msgspec.Struct, frozen=True, array_like=True):
    """role: the highest, which implies the others. name: of the project, where its id is not the name."""

    id: str
    role: str
    name: str = ""


class ClaimedRights(msgspec.Struct, frozen=True, array_like=True):
    """user_id: of its own for each user of each provider, and like no id of another strategy."""

    user_id: str
    user_name: str
    is_admin: bool
    projects: tuple[ClaimedProject, ...]


def rights_of(claims: Claims, settings: OpenIdSettings) -> ClaimedRights:
    """claims: verified, so with `iss` and `sub`."""
    name, values = claims.get(settings.name_claim), _texts(claims.get(settings.projects_claim))
    return ClaimedRights(
        hashlib.sha256(f"{claims['iss']}\n{claims['sub']}".encode()).hexdigest()[:32],
        (name if isinstance(name, str) and name else f"{claims['sub']}")[:_LONGEST],
        settings.administrator is not None and settings.administrator in values,
        tuple(ClaimedProject(project, role) for project, role in sorted(_roles(values).items())),
    )


def _texts(claim: object) -> list[str]:
    """A provider may give a single value without a list around it."""
    values = claim if isinstance(claim, list) else [claim]
    return [value for value in values if isinstance(value, str)]


def _roles(values: list[str]) -> dict[str, str]:
    """The highest role in each project."""
    found: dict[str, str] = {}
    for value in values:
        project, _, role = value.rpartition(":")
        if role in ROLES and 0 < len(project) <= _LONGEST:
            found[project] = min(role, found.get(project, role), key=ROLES.index)
    return found

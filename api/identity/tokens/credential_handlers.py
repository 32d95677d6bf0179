"""Application credentials of the caller: logins for programs, for one project, with no more roles than needed."""

import secrets
from datetime import UTC, datetime

from starlette.responses import Response

from fleetlight.api.bodies.request_body import read_json
from fleetlight.api.caller import ROLES
from fleetlight.api.http.answers import empty_answer, json_answer
from fleetlight.api.http.errors import BadRequestError, ForbiddenError, IdentityNotFoundError
from fleetlight.api.identity.tokens.directory import Credential, Directory, new_id
from fleetlight.api.identity.tokens.directory_file import DirectoryFile
from fleetlight.api.identity.tokens.login import Logins
from fleetlight.api.identity.tokens.middleware import IdentityRequest
from fleetlight.api.identity.tokens.requests import NEW_CREDENTIAL, NewCredential
from fleetlight.api.identity.tokens.views import role_id
from fleetlight.resources.clock import Clock, system_clock
from fleetlight.resources.fields import to_microseconds

_SECRET_BYTES = 64


class CredentialHandlers:
    """The handlers. max_credentials: largest number of a user."""

    def __init__(self, file: DirectoryFile, logins: Logins, max_credentials: int, clock: Clock = system_clock) -> None:
        self._file = file
        self._logins = logins
        self._max_credentials = max_credentials
        self._clock = clock

    async def index(self, request: IdentityRequest) -> Response:
        user_id = _owner(request, "identity:list_application_credentials")
        name = request.http.query_params.get("name")
        own = [
            request.views.credential(each)
            for each in request.directory.credentials_of(user_id)
            if name in {None, each.name}
        ]
        return request.listed("application_credentials", own)

    async def show(self, request: IdentityRequest) -> Response:
        user_id = _owner(request, "identity:get_application_credential")
        found = _found(request.directory, user_id, request.http.path_params["credential_id"])
        return json_answer({"application_credential": request.views.credential(found)})

    async def create(self, request: IdentityRequest) -> Response:
        """Make a credential; only this answer has its secret. Raises ForbiddenError, TooManyCredentialsError."""
        rule = "identity:create_application_credential"
        user_id, project_id = request.http.path_params["user_id"], request.token.project_id
        # Not for other users, and not by a credential, which could outlive itself in this way.
        if user_id != request.caller.user_id or project_id is None or request.token.credential_id is not None:
            raise ForbiddenError(rule)
        asked = NEW_CREDENTIAL.check(await read_json(request.http)).application_credential
        # Check before the costly hash.
        request.directory.require_room_for_credential(user_id, self._max_credentials)
        secret = asked.secret.get_secret_value() if asked.secret else secrets.token_urlsafe(_SECRET_BYTES)
        credential = Credential(
            id=new_id(),
            name=asked.name,
            secret_hash=await self._logins.hashed(secret, user_id),
            user_id=user_id,
            project_id=project_id,
            roles=_roles(asked, request.caller.roles),
            description=asked.description or "",
            expires_at=None if asked.expires_at is None else self._time(asked.expires_at),
        )

        def with_it(directory: Directory) -> Directory:
            directory.require_room_for_credential(user_id, self._max_credentials)
            return directory.with_credential(credential)

        await self._file.change_for(user_id, with_it)
        view = request.views.credential(credential) | {"secret": secret}
        return json_answer({"application_credential": view}, 201)

    async def delete(self, request: IdentityRequest) -> Response:
        user_id = _owner(request, "identity:delete_application_credential")
        if request.token.credential_id is not None:
            raise ForbiddenError("identity:delete_application_credential")
        credential_id = request.http.path_params["credential_id"]

        def without(directory: Directory) -> Directory:
            return directory.without_credential(_found(directory, user_id, credential_id))

        await self._file.change_for(request.caller.user_id, without)
        return empty_answer(204)

    def _time(self, text: str) -> int:
        try:
            time = datetime.fromisoformat(text)
            # A time whose UTC value lies beyond the year 9999 is refused, too.
            microseconds = to_microseconds(time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC))
        except (ValueError, OverflowError):
            raise BadRequestError(f"Invalid input for field expires_at: {text!r} is not a time.") from None
        if microseconds <= self._clock():
            raise BadRequestError("Invalid input for field expires_at: it has to be in the future.")
        return microseconds


def _owner(request: IdentityRequest, rule: str) -> str:
    user_id: str = request.http.path_params["user_id"]
    request.require_user(user_id, rule)
    return user_id


def _found(directory: Directory, user_id: str, credential_id: str) -> Credential:
    credential = directory.credentials.get(credential_id)
    if credential is None or credential.user_id != user_id:
        raise IdentityNotFoundError("application credential", credential_id)
    return credential


def _roles(asked: NewCredential, own: frozenset[str]) -> tuple[str, ...]:
    """Return the roles of a new credential: the requested ones, or all of the caller's if none are.

    Clients send an empty list if their user names none. Raises BadRequestError for a role that the caller lacks.
    """
    if not asked.roles:
        return tuple(name for name in ROLES if name in own)
    known = {role_id(name): name for name in ROLES}
    names = {known.get(role.id) if role.id is not None else role.name for role in asked.roles}
    if not names <= own:
        raise BadRequestError("Invalid application credential: it can only have roles that you have in the project.")
    return tuple(name for name in ROLES if name in names)

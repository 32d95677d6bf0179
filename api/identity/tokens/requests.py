"""What `POST /v3/auth/tokens` is asked with (contracts/nova-rest, 5.2)."""

import msgspec
from pydantic import SecretStr

from api.http.errors import BadRequestError
from api.http.secret_fields import to_secret
from api.identity.tokens.directory import DOMAIN_ID, DOMAIN_NAME


class DomainReference(msgspec.Struct, frozen=True):
    id: str | None = None
    name: str | None = None

    @property
    def is_ours(self) -> bool:
        return self.id == DOMAIN_ID or (self.id is None and self.name == DOMAIN_NAME)


class UserReference(msgspec.Struct, frozen=True):
    id: str | None = None
    name: str | None = None
    domain: DomainReference | None = None
    password: SecretStr | None = None


class ProjectReference(msgspec.Struct, frozen=True):
    id: str | None = None
    name: str | None = None
    domain: DomainReference | None = None


class PasswordMethod(msgspec.Struct, frozen=True):
    user: UserReference


class TokenMethod(msgspec.Struct, frozen=True):
    """id: the token itself."""

    id: SecretStr


class CredentialMethod(msgspec.Struct, frozen=True):
    secret: SecretStr
    id: str | None = None
    name: str | None = None
    user: UserReference | None = None


class Login(msgspec.Struct, frozen=True):
    """methods: exactly one; the object of the same name says who."""

    methods: tuple[str, ...]
    password: PasswordMethod | None = None
    token: TokenMethod | None = None
    application_credential: CredentialMethod | None = None

    @property
    def name(self) -> str | None:
        """What is logged in with: the name or id of a user or a credential; of a token there is none."""
        if self.password is not None:
            return self.password.user.name or self.password.user.id
        if self.application_credential is not None:
            return self.application_credential.name or self.application_credential.id
        return None


class Scope(msgspec.Struct, frozen=True):
    """Only a project can be had; the others are known so that asking for them is refused and not misread."""

    project: ProjectReference | None = None
    domain: DomainReference | None = None
    system: dict[str, bool] | None = None

    @property
    def is_ambiguous(self) -> bool:
        return sum(each is not None for each in (self.project, self.domain, self.system)) > 1


class Authentication(msgspec.Struct, frozen=True):
    """scope: a project, the word `unscoped`, or nothing: the user's default project if there is one."""

    identity: Login
    scope: Scope | str | None = None


class LoginRequest(msgspec.Struct, frozen=True):
    """The body of `POST /v3/auth/tokens`."""

    auth: Authentication


def authentication_of(body: bytes) -> Authentication:
    """Read the body of a login; raises BadRequestError that says what is wrong where, without any value."""
    try:
        authentication = msgspec.json.decode(body, type=LoginRequest, dec_hook=to_secret).auth
    except msgspec.MsgspecError as error:
        raise BadRequestError(f"Expecting to find a valid request for authentication: {error}.") from None
    if isinstance(authentication.scope, str) and authentication.scope != "unscoped":
        raise BadRequestError("The scope must be an object, or the word unscoped.")
    if isinstance(authentication.scope, Scope) and authentication.scope.is_ambiguous:
        raise BadRequestError("The scope must be one of project, domain and system.")
    if len(authentication.identity.methods) != 1:
        raise BadRequestError("Expecting to find exactly one method in auth.identity.methods.")
    return authentication

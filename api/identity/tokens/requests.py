"""Request bodies of the identity service (contracts/nova-rest, 5.2 and 5.4)."""

import unicodedata
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError

from fleetlight.api.bodies.request_body import Body, RequestModel
from fleetlight.api.identity.tokens.directory import DOMAIN_ID, DOMAIN_NAME

# A shorter secret can be guessed, and a longer one is no safer.
_MIN_SECRET, _MAX_SECRET = 16, 255


class IdentityModel(RequestModel):
    """An object whose unknown keys are ignored, as by Keystone."""

    model_config = ConfigDict(extra="ignore")


class Reference(IdentityModel):
    id: str | None = None
    name: str | None = None


class DomainReference(Reference):
    @property
    def is_ours(self) -> bool:
        return self.id == DOMAIN_ID or (self.id is None and self.name == DOMAIN_NAME)


class UserReference(Reference):
    domain: DomainReference | None = None
    password: SecretStr | None = None


class ProjectReference(Reference):
    domain: DomainReference | None = None


class PasswordMethod(IdentityModel):
    user: UserReference


class TokenMethod(IdentityModel):
    """id: the token itself."""

    id: SecretStr


class CredentialMethod(Reference):
    secret: SecretStr
    user: UserReference | None = None


class Login(IdentityModel):
    """A login. methods: exactly one; the member of that name identifies the user."""

    methods: Annotated[list[str], Field(min_length=1, max_length=1)]
    password: PasswordMethod | None = None
    token: TokenMethod | None = None
    application_credential: CredentialMethod | None = None

    @property
    def name(self) -> str | None:
        """The name or id of the user or credential; None for a login by token."""
        if self.password is not None:
            return self.password.user.name or self.password.user.id
        if self.application_credential is not None:
            return self.application_credential.name or self.application_credential.id
        return None


class Scope(IdentityModel):
    """The scope of a token. Only projects work; the other members exist so that requests for them are refused."""

    project: ProjectReference | None = None
    domain: DomainReference | None = None
    system: dict[str, bool] | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if sum(each is not None for each in (self.project, self.domain, self.system)) > 1:
            raise PydanticCustomError("ambiguous", "must be one of project, domain and system")
        return self


class Authentication(IdentityModel):
    """A request for a token. scope: a project, `unscoped`, or None for the user's default project, if any."""

    identity: Login
    scope: Scope | Literal["unscoped"] | None = None


def with_password(name: str, password: str, project_id: str | None) -> Authentication:
    """Make the login of a user by name, for a project, or its default project."""
    ours = DomainReference(id=DOMAIN_ID)
    user = UserReference(name=name, domain=ours, password=SecretStr(password))
    scope = None if project_id is None else Scope(project=ProjectReference(id=project_id))
    return Authentication(identity=Login(methods=["password"], password=PasswordMethod(user=user)), scope=scope)


def with_credential(identifier: str, secret: str) -> Authentication:
    """Make the login of the application credential with this id."""
    method = CredentialMethod(id=identifier, secret=SecretStr(secret))
    return Authentication(identity=Login(methods=["application_credential"], application_credential=method))


def _is_printed_in_one_line(text: str) -> str:
    """Check that a text prints in one line, since operators see it in their terminals."""
    if not text.strip():
        raise PydanticCustomError("blank", "is blank")
    if any(unicodedata.category(character) == "Cc" for character in text):
        raise PydanticCustomError("control_characters", "must not contain control characters")
    return text


def _is_not_wanted(value: object) -> object:
    if value:
        raise PydanticCustomError("not_here", "There are no such application credentials here")
    return value


class NewCredential(IdentityModel):
    """A new credential. secret: made if absent. Restrictions of credentials are refused, not ignored."""

    name: Annotated[str, Field(max_length=255), AfterValidator(_is_printed_in_one_line)]
    secret: Annotated[SecretStr, Field(min_length=_MIN_SECRET, max_length=_MAX_SECRET)] | None = None
    description: Annotated[str, Field(max_length=255)] | None = None
    expires_at: str | None = None
    roles: list[Reference] | None = None
    unrestricted: Annotated[bool | None, AfterValidator(_is_not_wanted)] = None
    access_rules: Annotated[list[Any] | None, AfterValidator(_is_not_wanted)] = None


class LoginBody(IdentityModel):
    auth: Authentication


class NewCredentialBody(IdentityModel):
    application_credential: NewCredential


LOGIN = Body(LoginBody, is_secret=True)
NEW_CREDENTIAL = Body(NewCredentialBody, is_secret=True)

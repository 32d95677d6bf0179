"""Signed tokens, with the user, the method of login, the project, and the expiry.

A token names its user and project; their rights are looked up at each use, so that a removed role, a disabled user or a
new password counts at once.
"""

import secrets
from dataclasses import dataclass

import msgspec
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import OctKey

_ALGORITHM = "HS256"  # the same process signs and checks, or one that reads the same file
LOGIN_LINK = "login_link"
_AUDIT_ID_BYTES = 16  # 22 characters


@dataclass(frozen=True, slots=True)
class Token:
    """The content of a token.

    methods: of the login; a token made from another token also has the method `token`.
    project_id: None: unscoped, which serves little but to get a token for a project.
    issued_at, expires_at: microseconds since the epoch.
    audit_ids: id of this token, then those of the tokens that it was made from, back to the first login.
    credential_id: the application credential of the login; None without one.
    """

    user_id: str
    methods: tuple[str, ...]
    project_id: str | None
    issued_at: int
    expires_at: int
    audit_ids: tuple[str, ...]
    credential_id: str | None = None

    @property
    def is_link(self) -> bool:
        """Whether the token belongs to a login link: valid for beginning one browser session, and for no request."""
        return LOGIN_LINK in self.methods


class _Claims(msgspec.Struct, frozen=True):
    """The claims of a token, with the names of RFC 7519 where it has one, and times in microseconds."""

    sub: str
    methods: tuple[str, ...]
    project: str | None
    issued: int
    expires: int
    audit: tuple[str, ...]
    credential: str | None


def new_audit_id() -> str:
    return secrets.token_urlsafe(_AUDIT_ID_BYTES)


def sign(token: Token, signing_key: str) -> str:
    """Sign a token; returns its text. signing_key: hexadecimal."""
    claims = _Claims(
        sub=token.user_id,
        methods=token.methods,
        project=token.project_id,
        issued=token.issued_at,
        expires=token.expires_at,
        audit=token.audit_ids,
        credential=token.credential_id,
    )
    return jwt.encode({"alg": _ALGORITHM}, msgspec.to_builtins(claims), _key(signing_key), algorithms=[_ALGORITHM])


def signed_token(text: str, signing_key: str) -> Token | None:
    """Verify the signature of `text`, and return its token; None if it is invalid. Does not check the expiry."""
    try:
        decoded = jwt.decode(text, _key(signing_key), algorithms=[_ALGORITHM])
        claims = msgspec.convert(decoded.claims, _Claims)
    except (JoseError, msgspec.ValidationError, ValueError):
        return None
    return Token(
        user_id=claims.sub,
        methods=claims.methods,
        project_id=claims.project,
        issued_at=claims.issued,
        expires_at=claims.expires,
        audit_ids=claims.audit,
        credential_id=claims.credential,
    )


def _key(signing_key: str) -> OctKey:
    return OctKey.import_key(bytes.fromhex(signing_key))

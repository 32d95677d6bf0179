"""Signed tokens: the user, how it logged in, for which project, and until when.

A token names its user and project; what they may do is looked up whenever the token is used, so that a role that was
taken away, a disabled user or a new password counts at once.
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
    """What is known of a login.

    methods: how; a token that was made from another one has the method `token` too.
    project_id: None: unscoped, which is good for little but to get a token for a project.
    issued_at, expires_at: microseconds since the epoch.
    audit_ids: names of this token and of those that it was made from, one from the other, the first login last.
    credential_id: of the application credential that was used.
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
        """Whether it is that of a login link: good for one session of a browser, and for no request."""
        return LOGIN_LINK in self.methods


class _Claims(msgspec.Struct, frozen=True):
    """The names of RFC 7519 where it has one, with times in microseconds."""

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
    """The text that the caller keeps. signing_key: hexadecimal."""
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
    """The token that `sign` made `text` of; None if it is not one of ours. Whether it has expired is not looked at."""
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

"""Errors of logins at an OpenID provider.

LoginFailedError
├── LoginStateError      the answer belongs to no login that this browser has begun
├── LoginRefusedError    the provider has refused the login, or its token is invalid
└── NoProjectError       the user is known, but has no rights here
"""

from fleetlight.api.http.errors import ApiError, UnauthorizedError


class LoginFailedError(ApiError):
    """A login failed. The text is for the person at the browser. status: of the answer. reason: for the log."""

    status = 401

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text)
        self.reason = reason


class LoginStateError(LoginFailedError):
    status = 400


class LoginRefusedError(LoginFailedError, UnauthorizedError):
    """The provider has refused the login, or its token is invalid. It counts like a wrong password."""


class NoProjectError(LoginFailedError):
    status = 403

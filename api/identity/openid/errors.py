"""Why a login at an OpenID provider does not begin a session.

LoginFailedError
├── LoginStateError      its answer is not that to a login which this browser has begun
├── LoginRefusedError    the provider let no one in, or its token is not good
└── NoProjectError       the user is known, and has no right here
"""

from fleetlight.api.http.errors import ApiError, UnauthorizedError


class LoginFailedError(ApiError):
    """The text is for the person at the browser. status: of the answer. reason: for the log."""

    status = 401

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text)
        self.reason = reason


class LoginStateError(LoginFailedError):
    status = 400


class LoginRefusedError(LoginFailedError, UnauthorizedError):
    """Counted as a wrong password is."""


class NoProjectError(LoginFailedError):
    status = 403

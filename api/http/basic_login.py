"""Names and passwords of HTTP basic authentication (RFC 7617)."""

from base64 import b64decode

from fleetlight.api.http.errors import UnauthorizedError


def name_and_password(header: str, challenge: str) -> tuple[str, str]:
    """What the header Authorization says. challenge: of the UnauthorizedError that is raised where it says neither."""
    scheme, _, encoded = header.partition(" ")
    try:
        name, colon, password = b64decode(encoded.strip(), validate=True).decode().partition(":")
    except ValueError:
        colon = ""
    if scheme.lower() != "basic" or not colon:
        raise UnauthorizedError("no basic authentication", challenge)
    return name, password

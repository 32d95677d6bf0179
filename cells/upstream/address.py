"""The address of an API, and where to find our account for it, without the secrets themselves.

As in `https://nova.example.org:8774/v2.1?cloud=east&clouds_file=/etc/openstack/clouds.yaml`. So the fleet database has
no secret, and a new password needs no command.
"""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

from fleetlight.cells.errors import UpstreamError


@dataclass(frozen=True, slots=True)
class UpstreamAddress:
    """One of: cloud and clouds_file; token_file; username and password_file; none of them if the API needs no login.

    ca_certs: PEM file of the authority behind the certificate of the API; that of the cloud, or those that the system
    trusts, unless given.
    """

    url: str
    cloud: str | None = None
    clouds_file: Path | None = None
    token_file: Path | None = None
    username: str | None = None
    password_file: Path | None = None
    ca_certs: Path | None = None

    def __post_init__(self) -> None:
        """Raises UpstreamError if the login is incomplete, or more than one is given."""
        if (self.cloud is None) != (self.clouds_file is None):
            raise UpstreamError("a cloud and the file that it is in belong together")
        if (self.username is None) != (self.password_file is None):
            raise UpstreamError("a user name and the file with its password belong together")
        if sum(way is not None for way in (self.cloud, self.token_file, self.username)) > 1:
            raise UpstreamError("there is more than one way to log in: give a cloud, a token, or a password")

    @classmethod
    def read(cls, text: str) -> "UpstreamAddress":
        """Parse a text of `write`. Raises UpstreamError for unknown parameters, or an incomplete login."""
        url, _, query = text.partition("?")
        given: dict[str, str] = dict(parse_qsl(query))
        unknown = sorted(given.keys() - cls.__dataclass_fields__.keys() | ({"url"} & given.keys()))
        if unknown:
            raise UpstreamError(f"the query of the address of an API is wrong: '{unknown[0]}' is not known")

        def path(key: str) -> Path | None:
            return Path(given[key]) if key in given else None

        return cls(
            url,
            given.get("cloud"),
            path("clouds_file"),
            path("token_file"),
            given.get("username"),
            path("password_file"),
            path("ca_certs"),
        )

    def write(self) -> str:
        """The text that `read` reads."""
        given = {
            name: str(value)
            for name in self.__dataclass_fields__
            if name != "url" and (value := getattr(self, name)) is not None
        }
        return f"{self.url}?{urlencode(given)}" if given else self.url

"""Checks of the header Host, by the names that a listener is called by.

Another site can bind its name to our address (DNS rebinding): then a browser takes us for a part of that site, and its
page reads what only the user can reach. But the browser still sends the site's name in the header Host.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

_NAME = re.compile(r"[a-z0-9_]([a-z0-9._-]*[a-z0-9_])?")
_HEADER = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:\d*)?")
_LOCALHOST = "localhost"


def _host_name(text: str) -> str:
    if not _NAME.fullmatch(text.lower()):
        raise ValueError("must be a name without scheme and port, such as api.example.org")
    return text.lower()


HostName = Annotated[str, AfterValidator(_host_name)]


@dataclass(frozen=True, slots=True)
class ServedHosts:
    """The names that are served: addresses and `localhost`, which no other site can have, and `names`.

    names: in lower case; None for any.
    """

    names: frozenset[str] | None

    @property
    def meaning(self) -> str:
        """The served names in words, for people."""
        return "any name" if self.names is None else ", ".join(("addresses", _LOCALHOST, *sorted(self.names)))

    def serves(self, hosts: Sequence[str]) -> bool:
        """Whether to answer a request with these headers Host. A request without one (HTTP 1.0) is no browser's."""
        return all(map(self._serves, hosts))

    def refusal(self, hosts: Sequence[str], setting: str) -> str:
        """Return the message for a refused request. setting: the name of the setting with the names."""
        return f"{', '.join(hosts)[:255]!r} is not served here, only {self.meaning}; {setting} can name more hosts."

    def _serves(self, host: str) -> bool:
        if self.names is None:
            return True
        found = _HEADER.fullmatch(host.strip().lower())
        if found is None:
            return False
        name = found["name"].removesuffix(".")
        is_local = name == _LOCALHOST or name.endswith(f".{_LOCALHOST}")
        return is_local or name in self.names or is_address(name.strip("[]"))


ANY_HOST = ServedHosts(None)


def is_loopback(listens_at: str) -> bool:
    """Whether only this machine can reach the address."""
    return listens_at == _LOCALHOST or (is_address(listens_at) and ip_address(listens_at).is_loopback)


def is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def host_of(url: str) -> str | None:
    """Return the host of a URL, in lower case, without the final dot of a full name; None if it has none."""
    try:
        name = urlsplit(url).hostname
    except ValueError:
        return None
    return name and name.removesuffix(".")

"""One request for a server or a list of servers, to be sent to both APIs."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote, urlencode

VERSION_HEADER = "OpenStack-API-Version"
TOKEN_IN_SHELL = "$OS_TOKEN"  # noqa: S105  # a variable, so that no report contains a token
BRIEF, DETAILED = "/servers", "/servers/detail"


@dataclass(frozen=True, slots=True)
class Question:
    """path: without the version, as in `/servers/detail`. parameters: decoded, in order.

    version: the microversion. pages: how many further pages to request after this one.
    """

    path: str
    parameters: tuple[tuple[str, str], ...] = ()
    version: str = "2.1"
    pages: int = 0

    @property
    def target(self) -> str:
        """Path and query for the request line."""
        query = urlencode(self.parameters, errors="surrogateescape")
        return f"{quote(self.path, errors='surrogateescape')}{'?' if query else ''}{query}"

    @property
    def headers(self) -> Mapping[str, str]:
        return {VERSION_HEADER: f"compute {self.version}", "Accept": "application/json"}

    @property
    def kind(self) -> str:
        """`/servers`, `/servers/detail` or `/servers/ID`."""
        return self.path if self.path in (BRIEF, DETAILED) else f"{BRIEF}/ID"

    @property
    def repeated(self) -> frozenset[str]:
        """Names of the parameters that occur more than once."""
        return frozenset(name for name, count in Counter(name for name, _ in self.parameters).items() if count > 1)

    def values(self, name: str) -> Sequence[str]:
        return [value for each, value in self.parameters if each == name]

    def next_page(self, marker: str) -> "Question":
        """The same request for the page after the server `marker`."""
        kept = tuple(each for each in self.parameters if each[0] != "marker")
        return replace(self, parameters=(*kept, ("marker", marker)), pages=self.pages - 1)

    def of_marker(self) -> "Question | None":
        """The request for the server that a sorted page comes behind; None for any other request."""
        markers = self.values("marker") if self.values("sort_key") else ()
        return replace(self, path=f"{BRIEF}/{markers[-1]}", parameters=(), pages=0) if markers else None

    def smaller(self, server: str) -> Iterator["Question"]:
        """Smaller requests that may show the same difference: for one server, or without one parameter.

        server: the id of the server that differs; empty if the difference concerns none.
        """
        plain = replace(self, pages=0)
        if server and self.path == DETAILED:
            yield replace(plain, path=f"{BRIEF}/{server}", parameters=())
        for place in range(len(self.parameters)):
            yield replace(plain, parameters=self.parameters[:place] + self.parameters[place + 1 :])

    def curl(self, base: str) -> str:
        """A shell command that sends this request to the API at `base`."""
        version = shlex.quote(f"{VERSION_HEADER}: compute {self.version}")
        return f'curl -s -H "X-Auth-Token: {TOKEN_IN_SHELL}" -H {version} {shlex.quote(base + self.target)}'

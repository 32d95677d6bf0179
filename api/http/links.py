"""The base addresses of links (contracts/nova-servers, section 7.1)."""

from dataclasses import dataclass
from urllib.parse import quote

import msgspec
from starlette.requests import Request


@dataclass(frozen=True, slots=True)
class Links:
    """The base addresses of one response. root: the application's address without a final slash.

    project: path element of the project, or empty. version: path element of the requested endpoint.
    """

    root: str
    project: str = ""
    version: str = "v2.1"

    @classmethod
    def of(cls, request: Request, prefix: str | None, project_id: str | None = None, version: str = "v2.1") -> "Links":
        """Make the addresses for a request; `prefix` replaces scheme and host (api.compute_link_prefix)."""
        root_path = request.scope.get("root_path", "").rstrip("/")
        server = request.scope.get("server")
        host = request.headers.get("host") or ("localhost" if server is None else f"{server[0]}:{server[1]}")
        origin = prefix or f"{request.scope['scheme']}://{host}"
        return cls(origin + root_path, "" if project_id is None else f"/{quote(project_id, safe='')}", version)

    @property
    def versioned(self) -> str:
        return f"{self.root}/{self.version}{self.project}"

    @property
    def plain(self) -> str:
        return f"{self.root}{self.project}"

    @property
    def as_json(self) -> tuple[str, str]:
        """Return `versioned` and `plain`, escaped for JSON strings: a Host header can hold any characters."""
        versioned, plain = (msgspec.json.encode(url)[1:-1].decode() for url in (self.versioned, self.plain))
        return versioned, plain

    def to(self, collection: str, name: str) -> list[dict[str, str]]:
        """Make the two links to one item of a collection (contracts/nova-rest, section 0)."""
        path = f"{collection}/{quote(name, safe='')}"
        return [
            {"rel": "self", "href": f"{self.versioned}/{path}"},
            {"rel": "bookmark", "href": f"{self.plain}/{path}"},
        ]

    def of_server(self, uuid: str) -> list[dict[str, str]]:
        return self.to("servers", uuid)

"""A Keystone that is played: it says about tokens what our own identity service never does.

The forms are those of contracts/nova-rest, 5.2; what is here beyond them is read from Keystone's API reference.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import ThreadingHTTPServer
from typing import Any

import msgspec

from tests.support.fleets.identity import DEMO
from tests.support.serving import QuietHandler, serving

REGION = "RegionOne"
_ADMIN = [{"id": "1", "name": "admin"}]
_DOMAIN = {"id": "default", "name": "Default"}
_PROJECT = {"project": {"id": DEMO, "name": "demo", "domain": _DOMAIN}}
# By token: what it is for, and which roles it gives there.
TOKENS: Mapping[str, Mapping[str, Any]] = {
    "of-a-project": {**_PROJECT, "roles": _ADMIN},
    "of-the-system": {"system": {"all": True}, "roles": _ADMIN},
    "of-a-domain": {"domain": _DOMAIN, "roles": _ADMIN},
    "of-nothing": {},
    "of-a-service": {**_PROJECT, "roles": [{"id": "2", "name": "service"}]},
    "of-no-service": {**_PROJECT, "roles": _ADMIN},
    "expired": {**_PROJECT, "roles": _ADMIN},
    "for-some-requests": {
        **_PROJECT,
        "roles": _ADMIN,
        "application_credential": {"id": "3", "name": "some", "restricted": True, "access_rules": []},
    },
}


@contextmanager
def played_keystone() -> Iterator[str]:
    """Its address, while it runs."""
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), _Keystone)) as address:
        yield f"http://{address}"


class _Keystone(QuietHandler):
    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path != "/v3/auth/tokens":
            version = {"id": "v3.14", "status": "stable", "links": [{"rel": "self", "href": f"{self._root}/v3/"}]}
            self._answer(200, {"version": version} if path.startswith("/v3") else {"versions": {"values": [version]}})
            return
        subject = self.headers["X-Subject-Token"]
        if subject not in TOKENS or (subject == "expired" and "allow_expired=1" not in query):
            self._answer(404, {"error": {"code": 404, "message": "Could not find token.", "title": "Not Found"}})
            return
        self._answer(200, self._token(TOKENS[subject], hours=-1 if subject == "expired" else 1))

    def do_POST(self) -> None:
        """The login of whoever asks about tokens."""
        self.rfile.read(int(self.headers["Content-Length"]))
        url = f"{self._root}/v3"
        interfaces = [
            {"id": name, "interface": name, "region": REGION, "region_id": REGION, "url": url}
            for name in ("public", "internal", "admin")
        ]
        catalog = [{"id": "4", "type": "identity", "name": "keystone", "endpoints": interfaces}]
        self._answer(
            201, self._token({**TOKENS["of-a-service"], "catalog": catalog}), {"X-Subject-Token": "of-a-service"}
        )

    @property
    def _root(self) -> str:
        return f"http://{self.headers['Host']}"

    def _token(self, scope: Mapping[str, Any], hours: int = 1) -> dict[str, Any]:
        now = datetime.now(UTC)
        token = {
            "methods": ["password"],
            "user": {"id": "ada", "name": "ada", "domain": _DOMAIN, "password_expires_at": None},
            "audit_ids": ["0123456789abcdefghijkl"],
            "issued_at": (now - timedelta(hours=2)).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "expires_at": (now + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            **scope,
        }
        return {"token": token}

    def _answer(self, status: int, document: object, headers: Mapping[str, str] | None = None) -> None:
        self.answer(status, msgspec.json.encode(document), {"Content-Type": "application/json", **(headers or {})})

"""An OpenID provider that is played: it follows the rules, and says at a word what a good provider never says.

It checks what it is asked: the client's password, the address to go back to, PKCE (RFC 7636), and codes good for once.
"""

import hashlib
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from secrets import token_urlsafe
from threading import Event
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote, urlsplit

import msgspec
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey
from joserfc.jws import JWSRegistry

from tests.support.serving import QuietHandler, serving

CLIENT, SECRET = "fleetlight", "of fleetlight"
LIFETIME_S = 600
_CALLBACK = "https://fleet.test/fleetlight/session/openid/callback"


def _base64(content: bytes) -> str:
    return urlsafe_b64encode(content).decode().rstrip("=")


def _new_key(name: str) -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": name, "use": "sig"})


_KEY, _OTHER_KEY, NEW_KEY = _new_key("first"), _new_key("other"), _new_key("new")


@dataclass
class PlayedOpenId:
    """issuer: its address. claims: of the user that logs in, and what is to be in its tokens besides or instead.

    algorithm: of its signatures. key: that signs. shows_key: whether it is among those that it shows.
    secret: the password of the client; None: a public one. status: of all answers.
    nonsense: by the path of an address, status and text that stand there instead of an answer.
    asked: the paths that it was asked for. is_slow: whether its answers take until it has ended, byte by byte.
    """

    issuer: str
    claims: dict[str, Any] = field(default_factory=lambda: {"sub": "1001", "preferred_username": "ada"})
    algorithm: str = "RS256"
    key: RSAKey | OctKey = field(default_factory=lambda: _KEY)
    shows_key: bool = True
    secret: str | None = SECRET
    status: int = 200
    metadata: dict[str, Any] = field(default_factory=dict)
    nonsense: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    is_slow: bool = False
    ended: Event = field(default_factory=Event)
    codes: dict[str, Mapping[str, str]] = field(default_factory=dict)

    def let_in(self, page: str) -> dict[str, str]:
        """What it sends the browser back with that was sent to `page`, when the user has typed the right password."""
        address, query = urlsplit(page), dict(parse_qsl(urlsplit(page).query))
        assert f"{address.scheme}://{address.netloc}{address.path}" == f"{self.issuer}/authorize"
        assert (query["response_type"], query["client_id"], query["redirect_uri"]) == ("code", CLIENT, _CALLBACK)
        assert query["code_challenge_method"] == "S256"
        assert "openid" in query["scope"].split()
        code = token_urlsafe()
        self.codes[code] = query
        return {"code": code, "state": query["state"]}

    def document(self) -> Mapping[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "end_session_endpoint": f"{self.issuer}/logout",
            "id_token_signing_alg_values_supported": ["RS256", "HS256", "none"],
            **self.metadata,
        }

    def keys(self) -> Mapping[str, Any]:
        shown = self.key if self.shows_key and isinstance(self.key, RSAKey) else _OTHER_KEY
        return {"keys": [shown.as_dict(private=False)]}

    def token(self, form: Mapping[str, str], authorization: str) -> tuple[int, Mapping[str, Any]]:
        """The answer to a request for a token."""
        if not self._knows(form, authorization):
            return 401, {"error": "invalid_client"}
        asked = self.codes.pop(form["code"], None)
        challenge = _base64(hashlib.sha256(form["code_verifier"].encode()).digest())
        if asked is None or asked["code_challenge"] != challenge or form["redirect_uri"] != asked["redirect_uri"]:
            return 400, {"error": "invalid_grant", "error_description": "the code is not good"}
        return 200, {"access_token": "not used", "token_type": "Bearer", "id_token": self._id_token(asked["nonce"])}

    def _knows(self, form: Mapping[str, str], authorization: str) -> bool:
        if self.secret is None:
            return form.get("client_id") == CLIENT and authorization == "" and "client_secret" not in form
        return unquote(b64decode(authorization.removeprefix("Basic ")).decode()) == f"{CLIENT}:{self.secret}"

    def _id_token(self, nonce: str) -> str:
        now = int(time.time())
        usual = {"iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + LIFETIME_S, "nonce": nonce}
        claims = {name: value for name, value in {**usual, **self.claims}.items() if value is not None}
        header = {"alg": self.algorithm, "kid": self.key.kid}
        if self.algorithm == "none":  # which no library writes willingly
            return f"{_base64(msgspec.json.encode(header))}.{_base64(msgspec.json.encode(claims))}."
        return jwt.encode(header, claims, self.key, registry=JWSRegistry(algorithms=["RS256", "HS256"]))


@contextmanager
def played_openid() -> Iterator[PlayedOpenId]:
    """It, while it runs."""

    class Handler(_Provider):
        provider: PlayedOpenId

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Handler.provider = PlayedOpenId(f"http://127.0.0.1:{server.server_port}")
    with serving(server):
        try:
            yield Handler.provider
        finally:
            Handler.provider.ended.set()


class _Provider(QuietHandler):
    provider: PlayedOpenId

    def do_GET(self) -> None:
        documents = {"/.well-known/openid-configuration": self.provider.document, "/keys": self.provider.keys}
        self._answer(self.provider.status, documents[self.path]())

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        values = {name: value for name, (value,) in form.items()}
        status, document = self.provider.token(values, self.headers.get("Authorization", ""))
        self._answer(status if self.provider.status == 200 else self.provider.status, document)

    def _answer(self, status: int, document: Mapping[str, Any]) -> None:
        self.provider.asked.append(self.path)
        status, body = self.provider.nonsense.get(self.path, (status, msgspec.json.encode(document)))
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        if not self.provider.is_slow:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        while self.provider.is_slow and not self.provider.ended.wait(0.02):
            self.wfile.write(b" ")
        self.wfile.write(body)

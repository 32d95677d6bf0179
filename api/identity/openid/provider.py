"""The OpenID provider, by authlib (the extra `openid`): the authorization code flow with PKCE.

Its discovery document and keys are cached for an hour; a token with an unknown key causes a new fetch.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import msgspec
import requests
from authlib.common.security import generate_token
from authlib.common.urls import add_params_to_uri
from authlib.integrations.base_client import OAuthError
from authlib.integrations.requests_client import OAuth2Session
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import BadSignatureError, InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet
from joserfc.jws import JWSRegistry

from fleetlight.api.http.connection import shown
from fleetlight.api.http.errors import IdentityServiceError
from fleetlight.api.identity.openid.errors import LoginRefusedError
from fleetlight.api.identity.openid.rights import Claims
from fleetlight.api.identity.openid.sessions import Attempt
from fleetlight.api.settings import OpenIdSettings, is_secure_url
from fleetlight.cells.daemon_threads import DaemonThreads
from fleetlight.resources.clock import Clock, system_clock
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

Answer = TypeVar("Answer")
# Errors that libraries raise for malformed answers of a provider.
_NONSENSE = (
    JoseError,
    msgspec.DecodeError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
_THREADS = 4
# One login needs the document, the token, and the keys.
_MOST_REQUESTS = 3
_KEPT_S = 3600.0
_ATTEMPT_S = 600
_LEEWAY_S = 30
# Signatures by a key that only the provider has: neither `none`, nor a secret shared with clients.
_ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"})


class _Metadata(msgspec.Struct, frozen=True):
    """The used part of a discovery document (OpenID Connect Discovery 1.0, section 3)."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    end_session_endpoint: str | None = None
    id_token_signing_alg_values_supported: tuple[str, ...] = ("RS256",)
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


class OpenIdProvider:
    """An OpenID provider. settings: with `issuer` and `client_id`. callback: the address to which it returns browsers.

    Every call raises IdentityServiceError when the provider does not answer, or its answer is malformed.
    """

    def __init__(self, settings: OpenIdSettings, callback: str, clock: Clock = system_clock) -> None:
        self._settings = settings
        self._callback = callback
        self._clock = clock
        self._threads = DaemonThreads(_THREADS, "openid")
        self._known: tuple[float, _Metadata] | None = None
        self._keys: KeySet | None = None

    async def begin(self, next_page: str) -> tuple[str, Attempt]:
        """Begin a login; returns the provider's page to open, and the attempt that its answer must match."""
        return await self._answer(partial(self._begin, next_page))

    async def claims(self, code: str, attempt: Attempt) -> Claims:
        """Exchange `code` for an ID token; returns its verified claims. Raises LoginRefusedError."""
        return await self._answer(partial(self._claims, code, attempt))

    async def logout_page(self, then: str) -> str | None:
        """Return the provider's page that ends the login there and goes on to `then`; None if it has none."""
        endpoint = (await self._answer(self._metadata)).end_session_endpoint
        if endpoint is None or not is_secure_url(endpoint):
            return None
        query = {"client_id": self._settings.client_id, "post_logout_redirect_uri": then}
        return str(add_params_to_uri(endpoint, query))

    async def _answer(self, call: Callable[[], Answer]) -> Answer:
        """Run `call` within a time limit, since requests only limits the wait for each byte."""
        timeout_s = _MOST_REQUESTS * self._settings.timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                return await self._threads.run(call)
        except TimeoutError:
            raise IdentityServiceError(f"the provider has not answered within {timeout_s} seconds") from None

    def _begin(self, next_page: str) -> tuple[str, Attempt]:
        metadata, nonce, verifier = self._metadata(), generate_token(32), generate_token(64)
        with self._client(metadata) as client:
            page, state = client.create_authorization_url(
                metadata.authorization_endpoint, nonce=nonce, code_verifier=verifier
            )
        expires_at = self._clock() + _ATTEMPT_S * MICROSECONDS_PER_SECOND
        return page, Attempt(state, nonce, verifier, next_page, expires_at)

    def _claims(self, code: str, attempt: Attempt) -> Claims:
        metadata = self._metadata()
        try:
            with self._client(metadata) as client:
                token: Mapping[str, Any] = client.fetch_token(
                    metadata.token_endpoint,
                    grant_type="authorization_code",
                    code=code,
                    code_verifier=attempt.code_verifier,
                )
        except OAuthError as error:
            if error.error == "invalid_grant":
                raise self._refused("the code is not good (any more)") from error
            raise IdentityServiceError(f"the token endpoint refuses this client: {shown(str(error))}") from error
        except (requests.RequestException, *_NONSENSE) as error:
            raise IdentityServiceError(f"the token endpoint fails: {shown(str(error))}") from error
        if "id_token" not in token:
            raise IdentityServiceError("the token endpoint gives no ID token")
        return self._verified(metadata, token, attempt.nonce)

    def _verified(self, metadata: _Metadata, token: Mapping[str, Any], nonce: str) -> Claims:
        """Verify an ID token by OpenID Connect Core 1.0, section 3.1.3.7."""
        options = {
            "iss": {"essential": True, "value": self._settings.issuer},
            "aud": {"essential": True, "value": self._settings.client_id},
            "sub": {"essential": True},
        }
        parameters = {
            "nonce": nonce,
            "client_id": self._settings.client_id,
            "access_token": token.get("access_token"),
        }
        try:
            decoded = self._decoded(metadata, str(token.get("id_token")))
            claims = CodeIDToken(decoded.claims, decoded.header, options, parameters)
            claims.validate(now=self._clock() // MICROSECONDS_PER_SECOND, leeway=_LEEWAY_S)
            timedelta(seconds=claims["exp"])  # raises for a time out of range
        except _NONSENSE as error:
            raise self._refused(f"the ID token is not good: {shown(str(error))}") from error
        return dict(claims)

    def _decoded(self, metadata: _Metadata, text: str) -> jwt.Token:
        algorithms = sorted(_ALGORITHMS.intersection(metadata.id_token_signing_alg_values_supported))
        registry = JWSRegistry(algorithms=algorithms, strict_check_header=False)
        if self._keys is not None:
            try:
                return jwt.decode(text, self._keys, registry=registry)
            except (InvalidKeyIdError, BadSignatureError):
                pass  # the provider may have a new key
        self._keys = self._fetched_keys(metadata)
        return jwt.decode(text, self._keys, registry=registry)

    def _fetched_keys(self, metadata: _Metadata) -> KeySet:
        try:
            return KeySet.import_key_set(msgspec.json.decode(self._fetched(metadata.jwks_uri)))
        except _NONSENSE as error:
            raise IdentityServiceError(f"{metadata.jwks_uri} has no keys: {error}") from error

    def _metadata(self) -> _Metadata:
        if self._known is not None and time.monotonic() - self._known[0] < _KEPT_S:
            return self._known[1]
        address = f"{self._settings.issuer}".rstrip("/") + "/.well-known/openid-configuration"
        try:
            metadata = msgspec.json.decode(self._fetched(address), type=_Metadata)
        except _NONSENSE as error:
            raise IdentityServiceError(f"{address} is no discovery document: {error}") from error
        if metadata.issuer != self._settings.issuer:
            raise IdentityServiceError(
                f"{address} is of the issuer {shown(metadata.issuer)}, not {self._settings.issuer}"
            )
        for url in (metadata.authorization_endpoint, metadata.token_endpoint, metadata.jwks_uri):
            if not is_secure_url(url):
                raise IdentityServiceError(f"{address} names an address without TLS: {shown(url)}")
        self._known, self._keys = (time.monotonic(), metadata), None
        return metadata

    def _fetched(self, address: str) -> bytes:
        try:
            response = requests.get(address, timeout=self._settings.timeout_s, verify=self._trusted)
            response.raise_for_status()
        except requests.RequestException as error:
            raise IdentityServiceError(f"{address} cannot be fetched: {error}") from error
        return response.content

    def _client(self, metadata: _Metadata) -> Any:
        secret = self._settings.client_secret
        methods = metadata.token_endpoint_auth_methods_supported
        by_post = "client_secret_basic" not in methods and "client_secret_post" in methods
        method = "none" if secret is None else "client_secret_post" if by_post else "client_secret_basic"
        return OAuth2Session(
            client_id=self._settings.client_id,
            client_secret=None if secret is None else secret.get_secret_value(),
            token_endpoint_auth_method=method,
            scope=" ".join(self._settings.scopes),
            redirect_uri=self._callback,
            code_challenge_method="S256",
            default_timeout=self._settings.timeout_s,
            verify=self._trusted,
        )

    @property
    def _trusted(self) -> str | bool:
        return True if self._settings.ca_file is None else str(self._settings.ca_file)

    def _refused(self, reason: str) -> LoginRefusedError:
        return LoginRefusedError(f"The login at {self._settings.name} did not succeed. Try again.", reason)

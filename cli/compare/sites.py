"""Where the two APIs are, how we log in there, and one request to one of them, which is a GET whatever it asks."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import yaml

from fleetlight.cells.errors import UpstreamError
from fleetlight.cells.kinds.nova_api.clouds import find_clouds_file, read_cloud
from fleetlight.cells.upstream.credentials import Credentials, Fixed, TokenFile
from fleetlight.cells.upstream.http import PassingError, UpstreamConnection
from fleetlight.cli.compare.differences import Answer
from fleetlight.cli.compare.questions import BRIEF, Question
from fleetlight.cli.errors import ConfigurationError

_TIMEOUT_S = 60.0
_OK, _UNAUTHORIZED = 200, 401


@dataclass(frozen=True, slots=True)
class Login:
    """How we log in where an address is given and not the name of a cloud. ca_certs: as of UpstreamAddress."""

    token: str | None = None
    token_file: Path | None = None
    clouds_file: Path | None = None
    ca_certs: Path | None = None

    @property
    def credentials(self) -> Credentials:
        if self.token_file is not None:
            return TokenFile(self.token_file)
        return Fixed({}) if self.token is None else Fixed.token(self.token)


class Site:
    """One API. Belongs to one thread at a time.

    url: with its version, as in https://nova.example.org:8774/v2.1.
    """

    def __init__(self, name: str, url: str, credentials: Credentials, ca_certs: Path | None) -> None:
        self.name = name
        self._credentials = credentials
        self._connection = UpstreamConnection(url, timeout_s=_TIMEOUT_S, ca_certs=ca_certs)
        self.url = self._connection.name.rstrip("/")

    def ask(self, question: Question) -> Answer:
        """The answer, of status 0 where there is none in time. Raises UpstreamError where we cannot log in any more."""
        started_s = time.perf_counter()
        try:
            headers = {**question.headers, **self._credentials.headers(None)}
            answer = self._connection.get(question.target, headers)
            if answer.status == _UNAUTHORIZED and self._credentials.renew(headers):
                headers |= self._credentials.headers(None)
                started_s = time.perf_counter()
                answer = self._connection.get(question.target, headers)
        except PassingError as error:
            return Answer(0, problem=str(error))
        duration_s = time.perf_counter() - started_s
        if answer.status == _UNAUTHORIZED:
            raise UpstreamError(f"--{self.name}: {self.url} refuses the login: status {answer.status}")
        return Answer(answer.status, _decoded(answer.body), answer.headers, duration_s, at_s=time.time())

    def newest(self) -> int:
        """The minor of the newest microversion of an API that lets us list servers.

        Raises PassingError, UpstreamError as `ask` does, and ConfigurationError where it does not let us.
        """
        first = self.ask(Question(BRIEF, (("limit", "1"),)))
        if first.status == 0:
            raise PassingError(first.problem)
        if first.status != _OK:
            raise ConfigurationError(f"--{self.name}: {self.url} does not list servers: status {first.status}")
        answer = self._connection.get("/", self._credentials.headers(None))
        document = _decoded(answer.body)
        try:
            return int(document["version"]["version"].removeprefix("2."))
        except (TypeError, KeyError, ValueError, AttributeError):
            about = f"{self.url} does not say its microversions: status {answer.status}"
            raise ConfigurationError(f"--{self.name}: {about}") from None

    def close(self) -> None:
        self._connection.close()


def open_site(name: str, place: str, login: Login) -> Site:
    """name: for people. place: an address, or the name of a cloud in clouds.yaml, which has the login too.

    Raises ConfigurationError for what can never work, and PassingError where the login is away.
    """
    try:
        if "://" in place:
            return Site(name, place, login.credentials, login.ca_certs)
        file = login.clouds_file or find_clouds_file()
        cloud = read_cloud(file, place, timeout_s=_TIMEOUT_S)
        ca_certs = login.ca_certs or cloud.ca_certs
        written = yaml.safe_load(file.read_text(encoding="utf-8"))["clouds"][place]
        return Site(name, _address(written, cloud.credentials, ca_certs), cloud.credentials, ca_certs)
    except PassingError:
        raise
    except UpstreamError as error:
        raise ConfigurationError(f"--{name}: {error}") from error


def _address(cloud: Mapping[str, Any], credentials: Credentials, ca_certs: Path | None) -> str:
    """That of the compute API, of the file itself or of Keystone's catalogue. Raises UpstreamError."""
    written = cloud.get("compute_endpoint_override") or cloud["auth"].get("endpoint")
    if written:
        return str(written)
    auth_url = str(cloud["auth"].get("auth_url", "")).rstrip("/").removesuffix("/v3")
    if urlsplit(auth_url).scheme not in ("http", "https"):
        raise UpstreamError("auth.auth_url is missing, or no address")
    keystone = UpstreamConnection(f"{auth_url}/v3", timeout_s=_TIMEOUT_S, ca_certs=ca_certs)
    try:
        answer = keystone.get("/auth/catalog", credentials.headers(None))
    finally:
        keystone.close()
    if answer.status != _OK:
        raise UpstreamError(f"{auth_url} does not show its catalogue: status {answer.status}")
    interface, region = cloud.get("interface", "public"), cloud.get("region_name")
    try:
        endpoints = [
            endpoint
            for service in _decoded(answer.body)["catalog"]
            if service["type"] == "compute"
            for endpoint in service["endpoints"]
            if endpoint["interface"] == interface and region in (None, endpoint["region"])
        ]
        return str(endpoints[0]["url"])
    except (TypeError, KeyError, IndexError):
        where = f"interface {interface}, region {region or 'any'}"
        raise UpstreamError(f"the catalogue of {auth_url} has no compute API ({where})") from None


def _decoded(body: bytes) -> Any:
    """None for what is no JSON."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None

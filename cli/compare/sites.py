"""The two APIs to compare: address, login, and sending one request, always a GET."""

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
    """Login options for an API that is given by address rather than by cloud. ca_certs: see UpstreamAddress."""

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
    """One API, used by one thread at a time.

    url: with the version, as in https://nova.example.org:8774/v2.1.
    """

    def __init__(self, name: str, url: str, credentials: Credentials, ca_certs: Path | None) -> None:
        self.name = name
        self._credentials = credentials
        self._connection = UpstreamConnection(url, timeout_s=_TIMEOUT_S, ca_certs=ca_certs)
        self.url = self._connection.name.rstrip("/")

    def ask(self, question: Question) -> Answer:
        """Send a request; status 0 means that no answer came in time. Raises UpstreamError if the login is refused."""
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
        """The minor number of the API's newest microversion.

        Raises PassingError if the API does not answer, UpstreamError, and ConfigurationError if it does not list
        servers.
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
    """Open an API. name: for messages. place: an address, or the name of a cloud in clouds.yaml, which has the login.

    Raises ConfigurationError if this can never work, and PassingError if the login service does not answer.
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
    """The address of the compute API, from clouds.yaml or from Keystone's catalogue. Raises UpstreamError."""
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
    """Decode JSON; None for anything else."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None

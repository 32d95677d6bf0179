"""Reads clouds.yaml, which has the logins of OpenStack's clients, so that an operator writes them once.

openstacksdk's own reader treats a file that is not YAML as empty, and a login without user or project as complete
(docs/decisions/0008). So this module reads the file, and keystoneauth1 logs in.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import yaml
from keystoneauth1 import exceptions
from keystoneauth1.loading import get_plugin_loader
from keystoneauth1.plugin import BaseAuthPlugin
from keystoneauth1.session import Session

from fleetlight.cells.errors import UpstreamError
from fleetlight.cells.upstream.credentials import TOKEN, Credentials, Fixed
from fleetlight.cells.upstream.http import PassingError

_FIRST_SERVER_ERROR = 500


class KeystoneLogin:
    """Credentials that log in at Keystone for a token when they need one, and again before it expires or when refused.

    plugin: logs in. timeout_s: of one request. ca_certs: as for the API.
    """

    def __init__(self, plugin: BaseAuthPlugin, *, timeout_s: float, ca_certs: Path | None) -> None:
        self._plugin = plugin
        self._timeout_s = timeout_s
        self._verify = True if ca_certs is None else str(ca_certs)
        self._mutex = Lock()
        self._known: Mapping[str, str] = {}

    def headers(self, deadline_s: float | None) -> Mapping[str, str]:
        """Log in if necessary. Raises PassingError, or UpstreamError if the login is refused."""
        timeout_s = self._timeout_s
        if deadline_s is not None:
            timeout_s = min(timeout_s, deadline_s - time.monotonic())
        if timeout_s <= 0:
            raise PassingError(f"{self._name} cannot be reached: no answer in time")
        with self._mutex:
            # Redirects are not followed: the credentials are for one address.
            session = Session(verify=self._verify, timeout=timeout_s, redirect=False)
            try:
                self._known = self._plugin.get_headers(session) or {}
            except exceptions.HttpError as error:
                if error.http_status >= _FIRST_SERVER_ERROR:
                    raise PassingError(f"{self._name} answers with status {error.http_status}") from error
                raise UpstreamError(f"{self._name} refuses the login: status {error.http_status}") from error
            except (exceptions.ConnectionError, exceptions.DiscoveryFailure) as error:
                raise PassingError(f"{self._name} cannot be reached: {error}") from error
            except exceptions.ClientException as error:
                raise UpstreamError(f"{self._name}: cannot log in: {error}") from error
            return self._known

    def renew(self, refused: Mapping[str, str]) -> bool:
        with self._mutex:
            # Another thread may have logged in already.
            return refused.get(TOKEN) != self._known.get(TOKEN) or bool(self._plugin.invalidate())

    @property
    def _name(self) -> str:
        return str(getattr(self._plugin, "auth_url", None) or "the login")


def log_in_with(kind: str, auth: Mapping[str, Any], *, timeout_s: float, ca_certs: Path | None) -> KeystoneLogin:
    """A login of a kind of keystoneauth1, with its options. Raises UpstreamError with the missing option."""
    try:
        loader: Any = get_plugin_loader(kind)
    except exceptions.NoMatchingPlugin:
        loader = None
    if loader is None or not loader.available:  # some need a library that is not installed
        raise UpstreamError(f"auth_type '{kind}' is not known here")
    options = {option.dest: auth[option.dest] for option in loader.get_options() if option.dest in auth}
    try:
        plugin = loader.load_from_options(**options)
    except exceptions.MissingRequiredOptions as error:
        raise UpstreamError(f"auth.{error.options[0].dest} is missing") from None
    except exceptions.ClientException as error:
        raise UpstreamError(f"auth: {error}") from None
    return KeystoneLogin(plugin, timeout_s=timeout_s, ca_certs=ca_certs)


_PLACES = (
    Path("clouds.yaml"),
    Path("~/.config/openstack/clouds.yaml"),
    Path("/etc/openstack/clouds.yaml"),
)
_PASSWORD, _TOKEN = ("password", "v3password"), ("token", "v3token")


@dataclass(frozen=True, slots=True)
class Cloud:
    """The login of one cloud. ca_certs: PEM file of the authority behind its certificates."""

    credentials: Credentials
    ca_certs: Path | None


def find_clouds_file() -> Path:
    """The file that openstacksdk would use. Raises UpstreamError if there is none."""
    named = os.environ.get("OS_CLIENT_CONFIG_FILE")
    places = [Path(named)] if named else [place.expanduser() for place in _PLACES]
    for place in places:
        if place.is_file():
            return place.absolute()
    raise UpstreamError(f"there is no clouds.yaml: looked for {', '.join(map(str, places))}")


def read_cloud(file: Path, name: str, *, timeout_s: float) -> Cloud:
    """The cloud called `name`. Raises UpstreamError, which never shows a secret."""
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        # The parser's message may show a line with a password.
        reason = error.strerror if isinstance(error, OSError) else "it is not YAML"
        raise UpstreamError(f"cannot read {file}: {reason}") from None
    clouds = found.get("clouds") if isinstance(found, dict) else None
    cloud = clouds.get(name) if isinstance(clouds, dict) else None
    if not isinstance(cloud, dict) or not isinstance(cloud.get("auth"), dict):
        known = ", ".join(map(str, clouds)) if isinstance(clouds, dict) else "none"
        raise UpstreamError(f"{file}: there is no login for a cloud '{name}'; known: {known}")
    ca_certs = Path(str(cloud["cacert"])).expanduser() if cloud.get("cacert") else None
    try:
        return Cloud(_credentials(cloud, cloud["auth"], timeout_s, ca_certs), ca_certs)
    except UpstreamError as error:
        raise UpstreamError(f"{file}: cloud '{name}': {error}") from None


def _credentials(
    cloud: Mapping[str, Any], auth: Mapping[str, Any], timeout_s: float, ca_certs: Path | None
) -> Credentials:
    is_credential = "application_credential_secret" in auth
    kind = str(cloud.get("auth_type") or ("v3applicationcredential" if is_credential else "password"))
    if kind in _TOKEN:
        if not auth.get("token"):
            raise UpstreamError("auth.token is missing")
        return Fixed.token(str(auth["token"]))
    if kind in _PASSWORD:
        _check_password(auth)
    from fleetlight.cells.kinds.nova_api.clouds import log_in_with  # noqa: PLC0415  # it takes long to load

    return log_in_with(kind, _with_domains(auth), timeout_s=timeout_s, ca_certs=ca_certs)


def _check_password(auth: Mapping[str, Any]) -> None:
    """Raises UpstreamError if user, password or project is missing, without which Keystone refuses the login."""
    for name, others in (("password", ()), ("username", ("user_id",)), ("project_name", ("project_id",))):
        if not any(auth.get(each) for each in (name, *others)):
            raise UpstreamError(f"auth.{name} is missing")


def _with_domains(auth: Mapping[str, Any]) -> dict[str, Any]:
    """`auth` with domains for the names of user and project: their own, a common one, or the default."""
    whole = {key: str(value) for key, value in auth.items() if key not in ("domain_id", "domain_name")}
    for what, name in (("user", "username"), ("project", "project_name")):
        if auth.get(name) and not any(auth.get(f"{what}_domain_{member}") for member in ("id", "name")):
            key = "id" if auth.get("domain_id") else "name"
            whole[f"{what}_domain_{key}"] = str(auth.get(f"domain_{key}") or "Default")
    return whole

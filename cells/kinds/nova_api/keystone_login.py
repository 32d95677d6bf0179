"""Logins at Keystone by keystoneauth1, of every kind that it knows.

It loads slowly, so this module is imported where a cell logs in that way, and nowhere else.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from keystoneauth1 import exceptions
from keystoneauth1.loading import get_plugin_loader
from keystoneauth1.plugin import BaseAuthPlugin
from keystoneauth1.session import Session

from fleetlight.cells.errors import UpstreamError
from fleetlight.cells.upstream.credentials import TOKEN
from fleetlight.cells.upstream.http import PassingError

_FIRST_SERVER_ERROR = 500


class KeystoneLogin:
    """A token, got when it is needed, and again when it is refused or about to end. See Credentials.

    plugin: knows how to log in. timeout_s: of one request. ca_certs: as for the API.
    """

    def __init__(self, plugin: BaseAuthPlugin, *, timeout_s: float, ca_certs: Path | None) -> None:
        self._plugin = plugin
        self._timeout_s = timeout_s
        self._verify = True if ca_certs is None else str(ca_certs)
        self._mutex = Lock()
        self._known: Mapping[str, str] = {}

    def headers(self, deadline_s: float | None) -> Mapping[str, str]:
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
            # Another thread may have got a new one already.
            return refused.get(TOKEN) != self._known.get(TOKEN) or bool(self._plugin.invalidate())

    @property
    def _name(self) -> str:
        return str(getattr(self._plugin, "auth_url", None) or "the login")


def log_in_with(kind: str, auth: Mapping[str, Any], *, timeout_s: float, ca_certs: Path | None) -> KeystoneLogin:
    """A login of one of the kinds that keystoneauth1 knows, with the options that it has.

    Raises UpstreamError, naming what is missing, for what can never work.
    """
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

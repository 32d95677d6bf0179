"""Sessions of browsers with the strategy `keystone`: tokens that Keystone is asked for (Identity API v3, auth/tokens).

Every call blocks, and raises UnauthorizedError for what Keystone refuses, IdentityServiceError when it gives no answer.
"""

from collections.abc import Mapping
from typing import Any

from keystoneauth1.exceptions import ClientException
from keystoneauth1.exceptions.http import HTTPClientError
from keystoneauth1.session import Session

from fleetlight.api.http.errors import IdentityServiceError, UnauthorizedError
from fleetlight.api.identity.browser import ENDED_CHALLENGE, Account, Named
from fleetlight.api.settings import KeystoneSettings

_SUBJECT = "X-Subject-Token"


class KeystoneSessions:
    """settings: with `auth_url`. Names of users and projects are those of the domains that the settings name."""

    def __init__(self, settings: KeystoneSettings) -> None:
        self._root = f"{settings.auth_url}".removesuffix("/v3") + "/v3"
        self._user_domain = {"name": settings.user_domain_name}
        self._project_domain = {"name": settings.project_domain_name}
        ca_file = None if settings.ca_file is None else str(settings.ca_file)
        self._http = Session(verify=ca_file or True, timeout=settings.timeout_s)

    def with_password(self, name: str, password: str, project: str | None) -> str:
        """A token for the project of this name, or else the user's default one, or one of the user's."""
        user = {"name": name, "domain": self._user_domain, "password": password}
        identity = {"methods": ["password"], "password": {"user": user}}
        scope = None if project is None else {"project": {"name": project, "domain": self._project_domain}}
        token, shown = self._new_token(identity, scope)
        projects = [] if "project" in shown else self._projects(token)
        return self.with_token(token, projects[0].id) if projects else token

    def with_token(self, token: str, project: str) -> str:
        """A token for another project, by id or name, of the user of `token`."""
        found = next((each for each in self._projects(token) if project in {each.id, each.name}), None)
        if found is None:
            raise UnauthorizedError("no role in the project", ENDED_CHALLENGE)
        return self._new_token({"methods": ["token"], "token": {"id": token}}, {"project": {"id": found.id}})[0]

    def end(self, token: str) -> None:
        try:
            self._ask("DELETE", "/auth/tokens", token, {_SUBJECT: token})
        except UnauthorizedError:
            return  # it has ended by itself

    def account(self, token: str) -> Account:
        shown = self._ask("GET", "/auth/tokens?nocatalog", token, {_SUBJECT: token}).json()["token"]
        project = _named(shown["project"]) if "project" in shown else None
        return Account(_named(shown["user"]), project, self._projects(token))

    def _projects(self, token: str) -> list[Named]:
        found = self._ask("GET", "/auth/projects", token).json()["projects"]
        return sorted(map(_named, found), key=lambda project: project.name)

    def _new_token(self, identity: Mapping[str, Any], scope: object) -> tuple[str, Mapping[str, Any]]:
        """The text of a token, and what Keystone says of it."""
        auth = {"identity": identity} if scope is None else {"identity": identity, "scope": scope}
        answer = self._ask("POST", "/auth/tokens?nocatalog", json={"auth": auth})
        return answer.headers[_SUBJECT], answer.json()["token"]

    def _ask(
        self, method: str, path: str, token: str | None = None, headers: Mapping[str, str] | None = None, **content: Any
    ) -> Any:
        own = {} if token is None else {"X-Auth-Token": token}
        try:
            # Not logged: its requests and answers hold tokens and passwords.
            return self._http.request(
                self._root + path, method, headers={**own, **(headers or {})}, authenticated=False, log=False, **content
            )
        except HTTPClientError as error:
            raise UnauthorizedError(str(error), ENDED_CHALLENGE) from error
        except ClientException as error:
            raise IdentityServiceError(str(error)) from error


def _named(document: Mapping[str, Any]) -> Named:
    return Named(document["id"], document["name"])

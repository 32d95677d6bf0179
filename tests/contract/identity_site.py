"""An API with the strategy `tokens`, in this process, and logins to it."""

from typing import Any

import httpx

from fleetlight.api.identity.tokens.strategy import TokenIdentity
from fleetlight.resources.clock import Clock, system_clock
from fleetlight.resources.units import MICROSECONDS_PER_SECOND
from tests.contract.compute_fleet import Api, ComputeFleet
from tests.support.fleets.identity import DEMO, OTHER, login, password_login, project_scope, write_directory

TOKENS = "/identity/v3/auth/tokens"
LIFETIME_S = 3600


class Time:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = system_clock()

    def __call__(self) -> int:
        return self.now

    def pass_s(self, seconds: int) -> None:
        self.now += seconds * MICROSECONDS_PER_SECOND


class Site:
    """folder: of a fleet of its own. clock: decides when tokens expire."""

    def __init__(self, fleet: ComputeFleet, folder: Any, clock: Clock = system_clock) -> None:
        self.users = write_directory(folder / "identity.json")
        identity = TokenIdentity(self.users.path, region="RegionOne", lifetime_s=LIFETIME_S, clock=clock)
        self.api: Api = fleet.api(identity=identity)

    def post_login(self, body: object, query: str = "") -> httpx.Response:
        return self.api.request("POST", TOKENS + query, json=body)

    def log_in(self, name: str, project: str | None = "demo") -> str:
        """A token of a user for a project, or one without a project."""
        scope = "unscoped" if project is None else project_scope(project)
        response = self.post_login(password_login(name, scope=scope))
        assert response.status_code == 201, response.text
        return response.headers["X-Subject-Token"]

    def get(self, path: str, token: str, **headers: str) -> httpx.Response:
        return self.api.get(path, {"X-Auth-Token": token, **headers})

    def about(self, method: str, subject: str, token: str | None = None) -> httpx.Response:
        """A request about the token `subject`, made with another one or with itself."""
        return self.api.request(method, TOKENS, {"X-Auth-Token": token or subject, "X-Subject-Token": subject})

    def new_credential(self, name: str, **values: object) -> dict[str, Any]:
        """Makes an application credential of a user; the answer has its secret."""
        response = self.api.request(
            "POST",
            f"/identity/v3/users/id-{name}/application_credentials",
            {"X-Auth-Token": self.log_in(name)},
            json={"application_credential": {"name": "backup", **values}},
        )
        assert response.status_code == 201, response.text
        credential: dict[str, Any] = response.json()["application_credential"]
        return credential

    def use_credential(self, identifier: object, secret: object) -> httpx.Response:
        return self.post_login(login("application_credential", {"id": identifier, "secret": secret}))


def with_two_projects(fleet: ComputeFleet) -> ComputeFleet:
    """The fleet, with an instance `mine` of the project of most users and one, `theirs`, of the other."""
    fleet.create("north", display_name="mine", project_id=DEMO)
    fleet.create("east", display_name="theirs", project_id=OTHER)
    fleet.index()
    return fleet

"""Requests of the remote API that submit jobs, over a fleet of the contract tests."""

from collections.abc import Mapping
from html import unescape
from typing import Any

from tests.contract.compute_fleet import Api, ComputeFleet


class RapiCalls:
    """Makes requests below one address: `/2`, or that of one cell."""

    def __init__(self, fleet: ComputeFleet, api: Api, base: str = "/2") -> None:
        self.fleet = fleet
        self.api = api
        self.base = base

    def submit(self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None) -> int:
        """The number of the job that a request has submitted."""
        content = {} if body is None else {"json": body}
        response = self.api.request(method, f"{self.base}{path}", headers, **content)
        assert response.status_code == 200, response.text
        number: int = response.json()
        return number

    def job(self, number: int) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.get(f"/jobs/{number}")
        return found

    def get(self, path: str) -> Any:
        response = self.api.get(f"{self.base}{path}", {"Fleetlight-Consistency": "strong"})
        assert response.status_code == 200, response.text
        return response.json()

    def run(self, method: str, path: str, body: Any = None) -> Mapping[str, Any]:
        """The job of a request, when the workers have nothing left to do."""
        number = self.submit(method, path, body)
        self.fleet.work()
        return self.job(number)

    def result(self, method: str, path: str, body: Any = None) -> Any:
        """What the operation of a request has brought; it has to succeed."""
        job = self.run(method, path, body)
        assert job["status"] == "success", job["opresult"]
        [result] = job["opresult"]
        return result

    def failure(self, method: str, path: str, body: Any = None) -> tuple[str, str]:
        """How the operation of a request has failed: the text, and the reason of Ganeti, or the class without one."""
        job = self.run(method, path, body)
        assert job["status"] == "error", job
        name, arguments = job["opresult"][-1]
        return arguments[0], arguments[1] if len(arguments) > 1 else name

    def refusal(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        """Status and text of a request that submits nothing."""
        content = {} if body is None else {"json": body}
        response = self.api.request(method, f"{self.base}{path}", **content)
        assert response.status_code != 200, response.text
        return response.status_code, unescape(response.json()["message"])

    def cell(self, name: str) -> "RapiCalls":
        """The same of one cell."""
        return RapiCalls(self.fleet, self.api, f"/cells/{name}/2")

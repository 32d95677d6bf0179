"""What an API lists while something breaks, held against what the cells have promised."""

import time
from collections import deque
from dataclasses import dataclass

import httpx

from bench.faults.load import FaultLoad
from tests.support.waiting import wait_until

_MOST = 10_000  # as many as the world's API gives at once
_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class _Known:
    """What the cells had promised at a moment (seconds of the monotonic clock): servers by their uuid."""

    at_s: float
    alive: frozenset[str]
    deleted: frozenset[str]


class Lists:
    """Asks the API at `url` for lists of all servers, and for one server after the other.

    staleness_limit_s: how old a row of a complete list may be. `wrong` says what was wrong in answers, and `judged` how
    many complete lists there were that had to have what an earlier look at the promises had.
    """

    def __init__(self, url: str, load: FaultLoad, staleness_limit_s: float) -> None:
        self._client = httpx.Client(base_url=f"{url}/v2.1/", timeout=_TIMEOUT_S)
        self._load = load
        self._limit_s = staleness_limit_s
        self._known: deque[_Known] = deque()
        self.wrong: list[str] = []
        self.judged = 0

    def close(self) -> None:
        self._client.close()

    def wait_until_from_index(self) -> None:
        """Until a complete list comes from the index for all cells."""

        def is_from_index() -> bool:
            try:
                answer = self._ask()
            except httpx.TransportError:
                return False  # it has not begun yet
            route = answer.headers.get("Fleetlight-Route", "")
            return _is_complete(answer) and all("=index" in cell for cell in route.split(", "))

        wait_until(is_from_index, timeout_s=120)

    def forget(self) -> None:
        """Of what cells have promised until now some never happened."""
        self._known.clear()

    def check_for(self, seconds: float) -> None:
        """Judge list after list for so long."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            self.check()

    def check(self) -> None:
        """Judge one list.

        It has to have what the newest look at the promises has that is older than a row of it may be. What was changed
        since may be in it or not.
        """
        self._known.append(self._look())
        asked_s = time.monotonic()
        answer = self._ask()
        while len(self._known) > 1 and self._known[1].at_s + self._limit_s < asked_s:
            self._known.popleft()
        before, after = self._known[0], self._look()
        if before.at_s + self._limit_s >= asked_s or not _is_complete(answer):
            return
        listed = {server["id"] for server in answer.json()["servers"]}
        self.judged += 1
        for uuid in (before.alive & after.alive) - listed:
            self.wrong.append(f"a complete list lacks {uuid}")
        for uuid in before.deleted & listed:
            self.wrong.append(f"a complete list has {uuid}, which is deleted")

    def find_each(self) -> None:
        """Ask for each server by its id: those that are there must not be unknown."""
        for uuid in self._look().alive:
            answer = self._client.get(f"servers/{uuid}")
            if answer.status_code == 404 and uuid in self._look().alive:
                self.wrong.append(f"{uuid} is not found by its id")

    def _ask(self) -> httpx.Response:
        return self._client.get("servers", params={"all_tenants": "1", "limit": str(_MOST)})

    def _look(self) -> _Known:
        with self._load.paused():
            certain = {uuid: promise for uuid, promise in self._load.journal.items() if promise.is_certain}
            at_s = time.monotonic()
        deleted = frozenset(uuid for uuid, promise in certain.items() if promise.is_deleted)
        return _Known(at_s, frozenset(certain) - deleted, deleted)


def _is_complete(answer: httpx.Response) -> bool:
    return answer.status_code == 200 and answer.headers.get("Fleetlight-Complete") == "true"

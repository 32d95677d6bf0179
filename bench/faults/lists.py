"""What an API lists while something breaks, held against what the cells have promised."""

import re
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

import httpx

from bench.faults.load import FaultLoad, Promise
from tests.support.waiting import wait_until

_MOST = 10_000  # as many as the world's API gives at once
_TIMEOUT_S = 60.0
_CONSISTENCIES = ("bounded", "any", "strong")
# Of each cell, whether the index answered for it, and how old that is.
_ROUTE = re.compile(r"=(?P<route>[a-z-]+)(?:;watermark=\d+)?(?:;age=(?P<age_s>[\d.]+))?")
# Ages are rounded.
_ROUNDED_BY_S = 0.06


@dataclass(frozen=True, slots=True)
class _Known:
    """What the cells had promised at a moment (seconds of the monotonic clock): certain promises by uuid, and all
    instances that they ever had.
    """

    at_s: float
    certain: Mapping[str, Promise]
    ever: frozenset[str]

    def names(self) -> set[tuple[str, str]]:
        """Instances that are there, with the names that they have."""
        return {(uuid, promise.name) for uuid, promise in self.certain.items() if not promise.is_deleted}

    def deleted(self) -> set[str]:
        return {uuid for uuid, promise in self.certain.items() if promise.is_deleted}


@dataclass(frozen=True, slots=True)
class Judged:
    """A complete list. asked_s: when it was asked for. as_of_s: a moment that no row of it is said to be older than.
    Both on the monotonic clock. wrong: what is wrong in it.
    """

    asked_s: float
    as_of_s: float
    wrong: Sequence[str]


class Lists:
    """Asks the API at `url` for lists of all servers, and for one server after the other.

    staleness_limit_s: how old a row of a complete list may be. `wrong` says what was wrong in answers, and `judged` how
    many complete lists there were that had to have what an earlier look at the promises had.
    asks: chooses lists of every kind, in pages and whole; rows that no cell has are wrong then, too.
    """

    def __init__(self, url: str, load: FaultLoad, staleness_limit_s: float, asks: Random | None = None) -> None:
        self._client = httpx.Client(base_url=f"{url}/v2.1/", timeout=_TIMEOUT_S)
        self._load = load
        self._limit_s = staleness_limit_s
        self._asks = asks
        self._known: deque[_Known] = deque()
        self._token = ""
        self.wrong: list[str] = []
        self.judged = 0

    def close(self) -> None:
        self._client.close()

    def wait_until_from_index(self) -> None:
        """Until a complete list comes from the index for all cells."""

        def is_from_index() -> bool:
            try:
                answer = self._page({}, _MOST)
            except httpx.TransportError:
                return False  # it has not begun yet
            route = answer.headers.get("Fleetlight-Route", "")
            return _is_complete(answer) and all("=index" in cell for cell in route.split(", "))

        wait_until(is_from_index, timeout_s=120)

    def forget(self) -> None:
        """Of what cells have promised until now some never happened."""
        self._known.clear()

    def check_for(self, seconds: float) -> Sequence[Judged]:
        """Judge list after list for so long."""
        end_s = time.monotonic() + seconds
        judged = []
        while time.monotonic() < end_s:
            judged.append(self.check())
        return [each for each in judged if each is not None]

    def check(self) -> Judged | None:
        """Judge one list, if it is complete.

        It has to have what the newest look at the promises has that is older than a row of it may be. What was changed
        since may be in it or not.
        """
        self._known.append(self._look())
        asked_s = time.monotonic()
        pages = self._ask()
        while len(self._known) > 1 and self._known[1].at_s + self._limit_s < asked_s:
            self._known.popleft()
        before, after = self._known[0], self._look()
        if before.at_s + self._limit_s >= asked_s or not all(map(_is_complete, pages)):
            return None
        listed = {str(row["id"]): str(row["name"]) for page in pages for row in page.json()["servers"]}
        wrong = list(self._wrong_in(listed, before, after))
        self.judged += 1
        self.wrong += wrong
        return Judged(asked_s, asked_s - max(map(_age_s, pages)), wrong)

    def _wrong_in(self, listed: Mapping[str, str], before: _Known, after: _Known) -> Iterator[str]:
        for uuid, name in before.names() & after.names():
            if listed.get(uuid) != name:
                yield f"a complete list lacks {uuid}" if uuid not in listed else f"a complete list misnames {uuid}"
        for uuid in before.deleted() & listed.keys():
            yield f"a complete list has {uuid}, which is deleted"
        if self._asks is not None:
            for uuid in listed.keys() - after.ever:
                yield f"a complete list has {uuid}, which no cell has"

    def find_each(self) -> None:
        """Ask for each server by its id: those that are there must not be unknown."""
        for uuid, _ in self._look().names():
            answer = self._client.get(f"servers/{uuid}")
            if answer.status_code == 404 and uuid in dict(self._look().names()):
                self.wrong.append(f"{uuid} is not found by its id")

    def _ask(self) -> Sequence[httpx.Response]:
        """The pages of one list."""
        if self._asks is None:
            return [self._page({}, _MOST)]
        headers = {"Fleetlight-Consistency": self._asks.choice([*_CONSISTENCIES, f"at-least {self._new_token()}"])}
        limit = self._asks.choice([_MOST, self._asks.randint(5, 20)])
        pages = [self._page(headers, limit)]
        while _is_complete(pages[-1]) and len(rows := pages[-1].json()["servers"]) == limit:
            pages.append(self._page(headers, limit, marker=rows[-1]["id"]))
        return pages

    def _page(self, headers: Mapping[str, str], limit: int, **parameters: str) -> httpx.Response:
        return self._client.get(
            "servers", params={"all_tenants": "1", "limit": str(limit), **parameters}, headers=dict(headers)
        )

    def _new_token(self) -> str:
        """Of a server that was there a moment ago."""
        assert self._asks is not None
        uuid = self._asks.choice(sorted(self._known[-1].names()))[0]
        self._token = self._client.get(f"servers/{uuid}").headers.get("Fleetlight-Token", self._token)
        return self._token

    def _look(self) -> _Known:
        with self._load.paused():
            certain = {uuid: promise for uuid, promise in self._load.journal.items() if promise.is_certain}
            return _Known(time.monotonic(), certain, frozenset(self._load.journal))


def _is_complete(answer: httpx.Response) -> bool:
    return answer.status_code == 200 and answer.headers.get("Fleetlight-Complete") == "true"


def _age_s(answer: httpx.Response) -> float:
    """How old a row of it may be at the most, by what it says of each cell."""
    ages = [float(found["age_s"]) for found in _ROUTE.finditer(answer.headers["Fleetlight-Route"]) if found["age_s"]]
    return max(ages, default=0.0) + _ROUNDED_BY_S

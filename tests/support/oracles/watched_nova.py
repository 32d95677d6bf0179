"""Readers of the API who ask all the time, and hold each answer against the rows that were committed."""

import json
import re
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from threading import Event, Thread
from typing import Any

import httpx

from tests.support.oracles.committed_rows import ABSENT, PARTS, CommittedRows, Value, shown_parts
from tests.support.waiting import wait_until

_HEADERS = {"OpenStack-API-Version": "compute latest"}
_AGE = re.compile(r";age=([\d.]+)")
LIMIT_S = 5.0
"""`search.staleness_limit_s`, unless it is set."""
# A commit is in the log a moment before others see it, and ages are rounded.
_SLACK_S = 0.5
_PAUSE_S = 0.03
# What a list may be restricted to: the parameter, and the part that it is about.
_FILTERS: Mapping[str, tuple[str, Sequence[Value]]] = {
    "host": ("host", ["host-1", "host-2"]),
    "vm_state": ("vm_state", ["active", "stopped", "paused", "error"]),
    "locked": ("locked", [True, False]),
    "tags": ("tags", [f"tag-{number}" for number in range(6)]),
}


@dataclass(frozen=True, slots=True)
class _Listed:
    """A complete list. since: no row of it may be older (seconds of the monotonic clock)."""

    since: float
    servers: Mapping[str, Mapping[str, Value]]
    filtered: tuple[str, Value] | None


@dataclass
class ListWatcher:
    """Asks for lists with the default settings. `wrong` says what is wrong in complete ones."""

    url: str
    rows: CommittedRows
    draw: Random
    asked: int = 0
    complete: int = 0
    from_index: int = 0
    compared: int = 0
    wrong: list[str] = field(default_factory=list)
    _unjudged: deque[_Listed] = field(default_factory=deque)

    def ask(self, client: httpx.Client) -> None:
        parameters: dict[str, str] = {"all_tenants": "1", "limit": "1000"}
        filtered = None
        if self.draw.random() < 0.4:
            name = self.draw.choice(sorted(_FILTERS))
            part, choices = _FILTERS[name]
            value = self.draw.choice(choices)
            parameters[name] = str(value)
            filtered = (part, value)
        self.asked += 1
        asked_s = time.monotonic()
        try:
            answer = client.get("/v2.1/servers/detail", params=parameters, headers=_HEADERS)
        except httpx.TransportError:
            return
        if answer.status_code != 200:
            if answer.status_code != 503:
                self.wrong.append(f"answered with {answer.status_code}: {answer.text[:300]}")
            return
        if answer.headers["Fleetlight-Complete"] != "true":
            return
        self.complete += 1
        route = answer.headers["Fleetlight-Route"]
        self.from_index += "live" not in route
        age_s = max((float(age) for age in _AGE.findall(route)), default=0.0)
        if age_s > LIMIT_S:
            self.wrong.append(f"a complete list is {age_s} s old")
        servers = {str(each["id"]): shown_parts(each) for each in answer.json()["servers"]}
        self._unjudged.append(_Listed(asked_s - min(age_s, LIMIT_S) - _SLACK_S, servers, filtered))

    def judge(self, timeout_s: float = 60) -> None:
        """Compare the lists so far. Raises AssertionError if the rows cannot be known within `timeout_s`."""
        taken = list(self._unjudged)
        if taken:
            self.rows.catch_up(timeout_s)
        for listed in taken:
            self._unjudged.popleft()
            self.compared += 1
            self.wrong += self._wrong_in(listed)

    def _wrong_in(self, listed: _Listed) -> Iterator[str]:
        for uuid, parts in listed.servers.items():
            for part in PARTS if parts.get("name") is not None else ():
                possible = self.rows.values(uuid, part, listed.since)
                if parts[part] not in possible and self._is_in_cell(uuid):
                    yield f"a complete list says {parts[part]!r} for the {part} of {uuid}, which had {possible!r}"
            if True not in self.rows.values(uuid, "is_listed", listed.since):
                yield f"a complete list has {uuid}, which is gone"
            if listed.filtered is not None and not self._may_pass(uuid, listed):
                yield f"a list of {listed.filtered} has {uuid}"
        for uuid in set(self.rows.servers()) - listed.servers.keys():
            if ABSENT in self.rows.values(uuid, "is_listed", listed.since):
                continue
            if listed.filtered is None or self._must_pass(uuid, listed):
                yield f"a complete list of {listed.filtered} lacks {uuid}"

    def _is_in_cell(self, uuid: str) -> bool:
        """Whether it is no server that only waits for a cell."""
        return len(self.rows.history(uuid, "name")) > 1 or any(
            version.value is not ABSENT for version in self.rows.history(uuid, "name")
        )

    def _passes(self, uuid: str, listed: _Listed) -> Sequence[bool]:
        assert listed.filtered is not None
        part, wanted = listed.filtered
        values = self.rows.values(uuid, part, listed.since)
        return [wanted in (value or []) if part == "tags" else value == wanted for value in values]

    def _may_pass(self, uuid: str, listed: _Listed) -> bool:
        return any(self._passes(uuid, listed)) or not self._is_in_cell(uuid)

    def _must_pass(self, uuid: str, listed: _Listed) -> bool:
        return all(self._passes(uuid, listed)) and self._is_in_cell(uuid)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """All the time, in a thread of its own; `judge` is called by the caller."""
        stop = Event()

        def watch() -> None:
            with httpx.Client(base_url=self.url, timeout=30) as client:
                while not stop.is_set():
                    self.ask(client)
                    stop.wait(_PAUSE_S)

        with _beside(watch, stop):
            yield


_FIELDS = {
    "display_name": "name",
    "vm_state": "vm_state",
    "task_state": "task_state",
    "host": "host",
    "tags": "tags",
    "metadata": "metadata",
}


@dataclass(frozen=True, slots=True)
class Told:
    """A change as the feed told it; parts are None of a server that is gone. at: when it came, monotonic seconds."""

    revision: int
    cell: str
    parts: Mapping[str, Value] | None
    at: float


@dataclass
class FeedReader:
    """Follows the feed of changes by its cursor, and stores copy and cursor together."""

    url: str
    told: defaultdict[str, list[Told]] = field(default_factory=lambda: defaultdict(list))
    begun_anew: list[str] = field(default_factory=list)
    changes: int = 0
    polls: int = 0
    is_complete: bool = False
    failed: list[str] = field(default_factory=list)
    _cursor: str = ""

    def ask(self, client: httpx.Client) -> None:
        query = {"fields": ",".join(_FIELDS), "all_projects": "1", "wait": "1"}
        if self._cursor:
            query["after"] = self._cursor
        else:
            del query["wait"]
        try:
            answer = client.get("/fleetlight/changes", params=query)
        except httpx.TransportError:
            return
        if answer.status_code == 410:
            self.begun_anew.append(answer.text)
            self._cursor = ""
            return
        if answer.status_code != 200:
            if answer.status_code != 503:
                self.failed.append(f"{answer.status_code}: {answer.text[:300]}")
            return
        *changes, end = map(json.loads, answer.content.splitlines())
        if end["kind"] != "end":
            return
        now = time.monotonic()
        if not self._cursor:
            if (copy := self._listed(client)) is None:
                return
            self.told.clear()
            self.told.update(copy)
        for change in changes:
            parts = None
            if change["kind"] != "leave":
                parts = {part: cell[1] for part, cell in zip(_FIELDS.values(), change["cells"], strict=True)}
            self.told[change["id"]].append(Told(change["revision"], change["cell"], parts, now))
            self.changes += 1
        self._cursor = end["cursor"]
        self.is_complete = bool(end["complete"]) and not end["more"] and not changes
        self.polls += 1

    def catch_up(self) -> None:
        """Return when a poll that began after this call had nothing new. Raises AssertionError."""
        before = self.polls
        wait_until(lambda: self.polls > before + 1 and self.is_complete)

    def _listed(self, client: httpx.Client) -> Mapping[str, list[Told]] | None:
        """What to begin with, as docs/reference/changes.md says; None if the list is not complete."""
        query = {"fields": ",".join(["uuid", *_FIELDS]), "all_projects": "1", "limit": "1000"}
        try:
            answer = client.get("/fleetlight/query", params=query, headers={"Fleetlight-Consistency": "strong"})
        except httpx.TransportError:
            return None
        if answer.status_code != 200 or answer.headers["Fleetlight-Complete"] != "true":
            return None
        copy = {}
        for uuid, *cells in answer.json()["data"]:
            parts = {part: cell[1] for part, cell in zip(_FIELDS.values(), cells, strict=True)}
            copy[uuid[1]] = [Told(-1, "", parts, time.monotonic())]
        return copy

    @contextmanager
    def reading(self) -> Iterator[None]:
        stop = Event()

        def read() -> None:
            with httpx.Client(base_url=self.url, timeout=30) as client:
                while not stop.is_set():
                    self.ask(client)

        with _beside(read, stop):
            yield

    def wrong(self, rows: CommittedRows) -> Iterator[str]:
        """What was told twice, what never was so, or not in that order, and what is not the last that was committed."""
        for uuid, told in self.told.items():
            revisions = [each.revision for each in told]
            if sorted(set(revisions)) != revisions:
                yield f"revisions of {uuid} are {revisions}"
            for part in _FIELDS.values():
                history = [version.value for version in rows.history(uuid, part)]
                if not any(value is not ABSENT for value in history):
                    continue  # It waits for a cell.
                at = 0
                for each in told:
                    value = None if each.parts is None else each.parts[part]
                    value = sorted(value) if part == "tags" and value is not None else value
                    try:
                        at = history.index(value, at)
                    except ValueError:
                        yield f"{part} of {uuid} was told as {value!r}, which it was not after {history[: at + 1]!r}"
                        break
                else:
                    if told and history[-1] != value:
                        yield f"{part} of {uuid} was told last as {value!r}, and is {history[-1]!r}"


@contextmanager
def _beside(run: Any, stop: Event) -> Iterator[None]:
    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            run()
        except BaseException as failure:
            failures.append(failure)
            raise

    thread = Thread(target=guarded, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
    assert not failures, repr(failures)

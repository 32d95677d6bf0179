"""A small compute API in memory: lists, single servers, pages, and a filter by name, at every microversion the same."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import urlencode

from fleetlight.cli.compare.access_log import question_in
from fleetlight.cli.compare.differences import Answer
from fleetlight.cli.compare.questions import BRIEF, VERSION_HEADER, Question
from tests.support.serving import QuietHandler, serving

Fault = Callable[[Answer], Answer]


def _no_fault(answer: Answer) -> Answer:
    return answer


def server(number: int, base: str, **values: Any) -> dict[str, Any]:
    uuid = f"{number:08x}-0000-4000-8000-000000000000"
    links = [
        {"rel": "self", "href": f"{base}/v2.1/servers/{uuid}"},
        {"rel": "bookmark", "href": f"{base}/servers/{uuid}"},
    ]
    return {"id": uuid, "name": f"web-{number}", "status": "ACTIVE", "hostId": "a", "links": links, **values}


@dataclass
class PlayedApi:
    """See fleetlight.cli.compare.comparison.Asked. asked: every question so far."""

    rows: Sequence[Mapping[str, Any]]
    base: str
    headers: Mapping[str, str] = field(default_factory=dict)
    asked: list[Question] = field(default_factory=list)

    @classmethod
    def with_servers(cls, count: int, base: str, **headers: str) -> "PlayedApi":
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return cls([server(number, base) for number in range(count)], base, named)

    def ask(self, question: Question) -> Answer:
        self.asked.append(question)
        headers = {VERSION_HEADER: f"compute {question.version}", **self.headers}
        if question.kind != question.path:
            found = [row for row in self.rows if row["id"] == question.path.removeprefix(f"{BRIEF}/")]
            if not found:
                return Answer(404, {"itemNotFound": {"code": 404, "message": "none"}}, headers, 0.001)
            return Answer(200, {"server": found[0]}, headers, 0.001)
        return Answer(200, self._page(question), headers, 0.002)

    def _page(self, question: Question) -> dict[str, Any]:
        rows = [row for row in self.rows if all(part in row["name"] for part in question.values("name"))]
        for marker in question.values("marker"):
            rows = rows[[*(row["id"] for row in rows), marker].index(marker) + 1 :]
        limit = next((int(value) for value in question.values("limit") if value.isdecimal()), 1000)
        page: dict[str, Any] = {"servers": rows[:limit]}
        if len(rows) > limit:
            query = urlencode([("limit", limit), ("marker", rows[limit - 1]["id"])])
            page["servers_links"] = [{"rel": "next", "href": f"{self.base}/v2.1{question.path}?{query}"}]
        return page


@dataclass
class ServedApi:
    """url: with its version. requests: methods and targets so far."""

    url: str
    requests: list[tuple[str, str]] = field(default_factory=list)


@contextmanager
def served_api(rows: Sequence[Mapping[str, Any]], *, token: str, fault: Fault = _no_fault) -> Iterator["ServedApi"]:
    """The same over HTTP, for those who have the token; `fault` changes its answers."""

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            served.requests.append((self.command, self.path))
            base = served.url.removesuffix("/v2.1")
            if self.headers["X-Auth-Token"] != token:
                self._send(Answer(401, {"error": {"code": 401}}))
                return
            found = question_in(f'"GET {self.path} HTTP/1.1" microversion: {self._version()}')
            if found is None:
                self._send(Answer(200, {"version": {"version": "2.104", "min_version": "2.1"}}))
                return
            self._send(fault(PlayedApi(rows, base).ask(found)))

        def _version(self) -> str:
            return self.headers.get(VERSION_HEADER, "").removeprefix("compute ")

        def _send(self, answer: Answer) -> None:
            self.answer(answer.status, json.dumps(answer.document).encode(), answer.headers)

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
        served = ServedApi(f"http://{address}/v2.1")
        yield served

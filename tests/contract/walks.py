"""Walks of two requests through the product: which functions a list and a Query2 query pass, over the SQLite index.

`python -m tests.contract.walks` prints their figures as JSON, for `scripts/size`.
"""

import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from types import FrameType
from unittest.mock import patch

import httpx

from tests.contract.compute_fleet import Api, compute_fleet, microversion

_HEADERS = microversion("2.90")
# The first requests fill caches, and any may meet work in the background; the shortest walk has met neither. Each asks
# for something else, so that it is not the answer that is kept.
_WALKS_EACH = 6


@dataclass(frozen=True, slots=True)
class Walk:
    """Functions, as (module, qualified name), in the order of their first calls, thread by thread.

    Functions that `def` makes in a module of `fleetlight`; neither lambdas and comprehensions, nor what libraries and
    dataclasses make.
    """

    functions: tuple[tuple[str, str], ...]

    def figures(self) -> dict[str, int]:
        """How many functions and modules it passes, and how often the next function is of another module."""
        modules = [module for module, _ in self.functions]
        changes = sum(module != following for module, following in pairwise(modules))
        return {"functions": len(modules), "modules": len(set(modules)), "changes": changes}


class _Profiler:
    """Notes calls of the product's functions, also in threads that begin while it is installed."""

    def __init__(self) -> None:
        self._passed: dict[int, dict[tuple[str, str], None]] | None = None

    def note(self, frame: FrameType, event: str, _: object) -> None:
        passed, code = self._passed, frame.f_code
        if passed is None or event != "call" or "<" in (code.co_filename[0], code.co_name[0]):
            return
        module = frame.f_globals.get("__name__", "")
        if module.startswith("fleetlight."):
            passed.setdefault(threading.get_ident(), {})[module, code.co_qualname] = None

    def walk(self, request: "Request", api: Api, number: int) -> Walk:
        passed: dict[int, dict[tuple[str, str], None]] = {}
        self._passed = passed
        sys.setprofile(self.note)
        try:
            response = request(api, number)
        finally:
            sys.setprofile(None)
            self._passed = None
        assert response.status_code == 200, response.text
        return Walk(tuple(dict.fromkeys(chain.from_iterable(passed.values()))))


def list_request(api: Api, number: int) -> httpx.Response:
    """A page of details, filtered and sorted, from the index."""
    response = api.get(f"/v2.1/servers/detail?status=ACTIVE&sort_key=display_name&limit={number + 1}", _HEADERS)
    assert "live" not in response.headers["Fleetlight-Route"]
    return response


def query2_request(api: Api, number: int) -> httpx.Response:
    """Some fields of the instances of a name, from the index."""
    question = {"fields": ["name", "status", "pnode"], "filter": ["=", "name", f"web-{number}"]}
    return api.request("PUT", "/2/query/instance", json=question)


# Makes the request of that number of its kind.
Request = Callable[[Api, int], httpx.Response]
_REQUESTS: Mapping[str, Request] = {"list": list_request, "query2": query2_request}


def walks() -> dict[str, Walk]:
    """The shortest walk of each kind of request, over a small fleet that is at rest."""
    with _walked_api() as (profiler, api):
        return {name: _shortest(profiler, api, request) for name, request in _REQUESTS.items()}


def _shortest(profiler: _Profiler, api: Api, request: Request) -> Walk:
    walked = []
    for number in range(0, 2 * _WALKS_EACH, 2):
        # The time stands still: on a busy machine what the first of two requests has refreshed would be old again.
        with patch.object(time, "monotonic", partial(float, time.monotonic())):
            request(api, number)
            walked.append(profiler.walk(request, api, number + 1))
    return min(walked, key=lambda walk: tuple(walk.figures().values()))


@contextmanager
def _walked_api() -> Iterator[tuple[_Profiler, Api]]:
    profiler = _Profiler()
    threading.setprofile(profiler.note)
    try:
        with tempfile.TemporaryDirectory() as folder, compute_fleet(Path(folder)) as fleet:
            fleet.add_hosts()
            fleet.fill(2 * _WALKS_EACH)
            yield profiler, fleet.api()
    finally:
        threading.setprofile(None)


if __name__ == "__main__":
    json.dump({name: walk.figures() for name, walk in walks().items()}, sys.stdout)

"""One fleet, asked by every way in which a list can be answered: each index backend, and the cells themselves."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.contract.compute_fleet import Api, ComputeFleet, compute_fleet
from tests.support.servers.index_server import index_at
from tests.support.servers.real_servers import own_prefix

INDEX_KINDS = ("sqlite", pytest.param("elasticsearch", marks=pytest.mark.elasticsearch))
WAYS = ("sqlite index", pytest.param("elasticsearch index", marks=pytest.mark.elasticsearch), "cells")


def words(text: str) -> list[str]:
    """The names in a table of them."""
    return text.split()


@dataclass(frozen=True)
class Asked:
    """An API and how its lists are answered. summary: what Fleetlight-Route says of it to members."""

    fleet: ComputeFleet
    api: Api
    summary: str

    def get(self, url: str, *headers: Mapping[str, str]) -> httpx.Response:
        return self.api.get(url, self._consistency, *headers)

    def page(self, query: str, *headers: Mapping[str, str]) -> list[dict[str, Any]]:
        """The servers of a page of details, which must be a success."""
        response = self.get(f"/v2.1/servers/detail?{query}", *headers)
        assert response.status_code == 200, response.text
        servers: list[dict[str, Any]] = response.json()["servers"]
        return servers

    def names(self, query: str, *headers: Mapping[str, str]) -> list[str]:
        """The names on such a page, in its order."""
        return [server["name"] for server in self.page(query, *headers)]

    @property
    def _consistency(self) -> Mapping[str, str]:
        return {"Fleetlight-Consistency": "any" if self.summary == "index" else "strong"}


@contextmanager
def asked_by(
    way: str, folder: Path, request: pytest.FixtureRequest, fill: Callable[[ComputeFleet], object], **settings: Any
) -> Iterator[Asked]:
    """A fleet that `fill` has filled, indexed, and asked by `way`. settings: of `ComputeFleet.api`."""
    with fleet_with_index(way.partition(" index")[0], folder, request) as fleet:
        yield _filled(fleet, fill, "cells" if way == "cells" else "index", settings)


@contextmanager
def fleet_with_index(kind: str, folder: Path, request: pytest.FixtureRequest) -> Iterator[ComputeFleet]:
    """An empty fleet whose index is in Elasticsearch, if `kind` is that, and otherwise in a file of the folder."""
    if kind != "elasticsearch":
        with compute_fleet(folder) as fleet:
            yield fleet
        return
    url = request.getfixturevalue("elasticsearch_url")
    with own_prefix(url) as prefix:
        index = index_at(url, prefix.rstrip("-"), search_timeout_s=30)
        with compute_fleet(folder, index) as fleet:
            yield fleet


def _filled(
    fleet: ComputeFleet, fill: Callable[[ComputeFleet], object], summary: str, settings: dict[str, Any]
) -> Asked:
    fill(fleet)
    fleet.index()
    return Asked(fleet, fleet.api(**settings), summary)

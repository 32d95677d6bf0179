"""What it costs to list nodes with what they say themselves, when all of it is remembered.

A thousand nodes of one cell, with twenty instances each, over the API in this process; no agent is called.
"""

import statistics
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

from sqlalchemy import update

from bench.measure import Figure, at_most, figure, seconds
from fleetlight.cells.database.engines import writing
from fleetlight.cells.tables import compute_nodes
from fleetlight.manager.operations.hosts.cell_nodes import NewHost
from fleetlight.manager.operations.native_cells import nodes_in
from fleetlight.resources.amount import Amount
from tests.contract.compute_fleet import Api, compute_fleet
from tests.support.played.played_hosts import PlayedHosts, guest

_NODES, _INSTANCES = 1000, 20
_CELL = "north"
_PLAIN = "name,cell,pinst_cnt,sinst_cnt"
_LIVE = "name,cell,dtotal,dfree,mtotal,mnode,mfree,pinst_cnt,sinst_cnt"


def run(directory: Path, runs: int) -> Iterator[Figure]:
    """The list as `fleetlight list nodes` asks for it, and without the fields that nodes tell."""
    names = [f"node{number}" for number in range(_NODES)]
    instances = {f"{number:08d}-0000-4000-8000-000000000000": guest() for number in range(_INSTANCES)}
    with compute_fleet(directory) as fleet, closing(PlayedHosts(guests=dict.fromkeys(names, instances))) as hosts:
        size = Amount.of_gib(vcpus=64, memory_mib=262_144, disk_gib=4000)
        nodes_in(fleet.native, fleet.cells[_CELL]).add_hosts([NewHost(name, size, "nova") for name in names])
        with writing(fleet.engine(_CELL)) as connection:
            connection.execute(update(compute_nodes).values(agent_address="192.0.2.1:1811"))
        api = fleet.api(nodes=hosts)
        _ask(api, _LIVE)
        hosts.calls.clear()
        took: dict[str, list[float]] = {_PLAIN: [], _LIVE: []}
        # In turn, since what else the machine does is not the same all the time.
        for _ in range(runs):
            for fields, times in took.items():
                times.append(seconds(partial(_ask, api, fields)))
        plain_s, live_s = (statistics.median(times) for times in took.values())
        calls = len(hosts.calls)
    what = f"{_NODES} nodes with {_INSTANCES} instances each, over the API"
    yield figure("cache.list.plain", plain_s * 1000, "ms", f"{what}: {_PLAIN}", runs=runs)
    yield figure("cache.list.live", live_s * 1000, "ms", f"{what}: {_LIVE}, all remembered", runs=runs)
    of = "the list with what nodes say to the one without"
    yield figure("cache.list.ratio", live_s / plain_s, "ratio", of, runs=runs, goal=at_most(1.5))
    yield figure("cache.list.calls", calls, "calls", "of nodes", runs=1, goal=at_most(0))


def _ask(api: Api, fields: str) -> None:
    answer = api.get(f"/fleetlight/query?{urlencode({'what': 'node', 'fields': fields})}")
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["data"]) == _NODES

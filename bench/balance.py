"""`scripts/bench balance`: what a round of balancing costs, beside Ganeti's hbal where that is installed."""

import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from bench.measure import Figure, at_most, figure, interleaved
from fleetlight.manager.operations.balancing.cluster_file import read_cluster
from fleetlight.manager.operations.balancing.search import balance
from fleetlight.manager.operations.balancing.situation import Situation

_HTOOLS = Path(os.environ.get("FLEETLIGHT_TEST_HTOOLS", "/usr/lib/ganeti/3.0/usr/bin"))
_MEMORY_MIB, _DISK_MIB = 262_144, 4_194_304
_POLICY = "|128,1,1024,1,1,1|128,1,512,1,1,1;32768,8,1048576,16,8,12|drbd,plain|4.0|32.0"
# hbal takes more than ten minutes for a round of the large cluster, so the two are compared on a smaller one.
_COMPARED = (40, 400)


def run(directory: Path, quick: bool) -> Iterator[Figure]:
    """quick: a fifth of the nodes and instances, and fewer runs."""
    nodes, instances = (40, 400) if quick else (200, 2_000)
    situation = Situation.of(read_cluster(_cluster(nodes, instances)))
    began_s = time.process_time()
    _round(situation)
    took_s = time.process_time() - began_s
    what = (
        f"all moves of {instances} mirrored instances on {nodes} nodes are looked at, and the best one is made; "
        "time of the processor"
    )
    yield figure("round of balancing", took_s, "s", what, runs=1)
    if (_HTOOLS / "hbal").exists():
        yield _beside_hbal(directory, runs=1 if quick else 3)


def _beside_hbal(directory: Path, runs: int) -> Figure:
    nodes, instances = _COMPARED
    path = directory / "cluster.data"
    path.write_text(_cluster(nodes, instances))

    def ours() -> None:
        _round(Situation.of(read_cluster(path.read_text())))

    def theirs() -> None:
        subprocess.run([_HTOOLS / "hbal", "-t", path, "-l", "1"], check=True, capture_output=True)

    pair = interleaved(ours, theirs, runs)
    what = (
        f"a round over {instances} instances on {nodes} nodes, with reading the file: {pair.ours_s:.2f} s, "
        f"and hbal {pair.bare_s:.2f} s"
    )
    return figure("round of balancing / hbal", pair.ratio, "times", what, runs=pair.runs, goal=at_most(10))


def _round(situation: Situation) -> None:
    [group] = situation.cluster.groups
    assert balance(situation, group, most_moves=1).moves


def _cluster(nodes: int, instances: int) -> str:
    """A text file of htools: instances of several sizes on nodes drawn at random."""
    draw = random.Random(1)
    free = [[_MEMORY_MIB - 1024, _DISK_MIB] for _ in range(nodes)]
    lines = []
    for number in range(instances):
        memory, disk = draw.choice((1024, 2048, 4096, 8192)), draw.choice((10_240, 20_480, 51_200, 102_400))
        primary, secondary = draw.sample(range(nodes), 2)
        free[primary][0] -= memory
        for index in (primary, secondary):
            free[index][1] -= disk
        vcpus = draw.choice((1, 2, 4))
        lines.append(f"i{number}|{memory}|{disk}|{vcpus}|running|Y|n{primary}|n{secondary}|drbd||1|-|N")
    hosts = [
        f"n{index}|{_MEMORY_MIB}|1024|{memory}|{_DISK_MIB}|{disk}|32|N|uuid-1|1||N|0|1|1.0"
        for index, (memory, disk) in enumerate(free)
    ]
    sections: tuple[list[str], ...] = (["default|uuid-1|preferred||"], hosts, lines, [], [_POLICY, f"default{_POLICY}"])
    return "\n".join("".join(f"{line}\n" for line in section) for section in sections)

"""What Ganeti's own hspace says of clusters drawn at random is the measure of how much more fits in."""

import re
from random import Random

import pytest

from operations.balancing.capacity import InstanceSize, Tier, count_of, tiers_of
from operations.balancing.cluster import DiskTemplate
from operations.balancing.cluster_file import read_cluster
from tests.support.cluster_files import cluster_file
from tests.support.htools import Htools

SIZE = InstanceSize(4096, 20480, 4)
SMALL = InstanceSize(1024, 10240, 2)


@pytest.mark.parametrize("template", [DiskTemplate.DRBD, DiskTemplate.PLAIN])
def test_counts_and_tiers_are_those_of_hspace(htools: Htools, template: DiskTemplate) -> None:
    different = []
    for seed in range(25):
        text = cluster_file(Random(seed), reserved=0)
        said = htools.space(
            text,
            "--no-capacity-checks",
            *("--disk-template", template),
            *("--standard-alloc", f"{SMALL.disk_mib},{SMALL.memory_mib},{SMALL.vcpus}"),
            *("--tiered-alloc", f"{SIZE.disk_mib},{SIZE.memory_mib},{SIZE.vcpus}"),
        )
        cluster = read_cluster(text)
        found = (count_of(SMALL, tiers_of(cluster, SMALL, template)), list(tiers_of(cluster, SIZE, template)))
        if found != (int(said["ALLOC_INSTANCES"]), _tiers(said["TSPEC"])):
            different.append(seed)
    # Where places are equally good but for the last digits, hspace may take another one.
    assert len(different) <= 2, different


def _tiers(text: str) -> list[Tier]:
    """Of `memory,disk,processors,spindles=count` with blanks between them."""
    numbers = [[int(number) for number in re.split("[,=]", each)] for each in text.split()]
    return [Tier(InstanceSize(memory, disk, vcpus), count) for memory, disk, vcpus, _, count in numbers]

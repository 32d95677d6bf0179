"""Text files of htools: what is read, and how each fault is named."""

import re
from dataclasses import replace
from random import Random

import pytest

from fleetlight.manager.operations.balancing.cluster import DEFAULT_POLICY, DiskTemplate, InstanceStatus
from fleetlight.manager.operations.balancing.cluster_file import read_cluster
from fleetlight.manager.operations.balancing.cluster_file_writer import write_cluster
from fleetlight.manager.operations.balancing.errors import ClusterFileError
from fleetlight.manager.operations.balancing.plan import plan_balance
from tests.support.oracles.cluster_files import cluster_file
from tests.support.servers.htools import Htools

FILE = """\
default|uuid-1|last_resort|one,two|net-1

node1|65523|1023|63475|3405248|3305248|24|M|uuid-1|2|rack:1|N|0|1|1.0
node2|65523|1023|60000|3405248|3305248|24|N|uuid-1
node3|?|1023|60000|3405248|3305248|24|N|uuid-1|1

web|1024|2176|1|running|Y|node1|node2|drbd|a,b|1|-
db|512|50000|2|ADMIN_down|N|node1||plain||2|3|N
6f0c|128|1024|1|ADMIN_down|Y|node2|node1|drbd||1|-|Y

htools:iextags:service

|128,1,1024,1,1,1|128,1,512,1,1,1;1024,8,1048576,16,8,12|drbd,plain|4.0|32.0
default|128,1,1024,1,1,1|128,1,512,1,1,1;1024,8,1048576,16,8,12|drbd,plain|0.05|32.0
"""


def test_each_column_means_what_its_place_says() -> None:
    cluster = read_cluster(FILE)
    [group] = cluster.groups
    assert (group.name, group.uuid, group.allocation_policy.value) == ("default", "uuid-1", "last_resort")
    assert (group.tags, group.networks, group.policy.vcpu_ratio) == (("one", "two"), ("net-1",), 0.05)
    first, second, third = cluster.nodes
    assert (first.is_master, first.free_memory_mib, first.spindles, first.tags) == (True, 63475, 2, ("rack:1",))
    assert (second.spindles, second.own_vcpus, second.cpu_speed) == (1, 1, 1.0)
    assert third.is_offline
    assert third.total_memory_mib == 0
    web, db, reserved = cluster.instances
    assert (web.status, web.secondary, web.disk_template) == (InstanceStatus.RUNNING, "node2", DiskTemplate.DRBD)
    assert (db.is_auto_balanced, db.secondary, db.spindle_use, db.disk_spindles) == (False, None, 2, 3)
    assert (web.is_forthcoming, reserved.is_forthcoming, reserved.name) == (False, True, "6f0c")
    assert cluster.tags == ("htools:iextags:service",)
    assert [size.memory_mib for pair in cluster.policy.bounds for size in pair] == [128, 1024]


TWINS = """\
default|uuid-1|preferred||
default|uuid-2|preferred||

node1|65536|1024|40000|1000000|800000|24|N|uuid-1|1
node2|65536|1024|64000|1000000|900000|24|N|uuid-1|1
node3|65536|1024|64512|1000000|1000000|24|N|uuid-1|1

web|8192|102400|2|running|Y|node1|node2|drbd||1|-
web|4096|51200|2|running|Y|node1|node2|drbd||1|-
db|8192|51200|2|running|Y|node1|node2|drbd||1|-


"""


@pytest.mark.parametrize("third", ["node3", "node2"])
def test_names_may_be_there_twice_as_for_hbal(htools: Htools, third: str) -> None:
    text = TWINS.replace("node3", third)
    expected = htools.balance(text, "uuid-1")
    assert expected is not None
    cluster = read_cluster(text)
    assert read_cluster(write_cluster(cluster)) == cluster
    plan = plan_balance(cluster, "uuid-1")
    [group] = plan.groups
    assert group.score_before == pytest.approx(expected.before, abs=1e-6)
    assert group.score_after <= expected.best + 1e-6
    assert sorted(move.instance for move in group.moves) == ["db", "web", "web"]
    assert [instance.name for instance in plan.after.instances] == ["web", "web", "db"]
    # Each of the twins is where its own moves have brought it.
    last = {move.moved: (move.target.primary, move.target.secondary) for move in group.moves}
    for before, after in zip(cluster.instances, plan.after.instances, strict=True):
        assert (after.primary, after.secondary) == last.get(before, (before.primary, before.secondary))


def test_section_of_policies_may_be_missing() -> None:
    cluster = read_cluster(FILE[: FILE.index("\n|128")])
    assert cluster.policy == DEFAULT_POLICY


def test_what_is_written_is_read_as_the_same_cluster() -> None:
    for seed in range(50):
        cluster = read_cluster(cluster_file(Random(seed), reserved=0.3))
        assert read_cluster(write_cluster(cluster)) == cluster, seed


def test_numbers_are_written_as_haskell_shows_them() -> None:
    cluster = read_cluster(FILE)
    lines = write_cluster(replace(cluster, policy=replace(cluster.policy, spindle_ratio=12345678.0))).splitlines()
    assert lines[-2].endswith("|4.0|1.2345678e7")
    assert lines[-1].endswith("|5.0e-2|32.0")


FAULTS = {
    "unknown allocation policy": ("last_resort", "sometimes", 1, 3, "'sometimes' is none of preferred"),
    "too few columns of a group": ("|last_resort|one,two|net-1", "", 1, None, "has 2 columns instead of 4 to 5"),
    "too many columns of a node": ("|0|1|1.0", "|0|1|1.0|x", 3, None, "has 16 columns instead of 9 to 15"),
    "no number": ("node1|65523", "node1|0x10", 3, 2, "total memory: '0x10' is no whole number"),
    "blank before a number": ("node1|65523", "node1| 65523", 3, 2, "is no whole number"),
    "other digits": ("node1|65523", "node1|६५", 3, 2, "is no whole number"),
    "number beyond all bounds": ("node1|65523", "node1|99999999999999999999", 3, 2, "is not between 1 and"),
    "online node without memory": ("node1|65523", "node1|0", 3, 2, "0 is not between 1 and"),
    "online node without processors": ("|24|M", "|0|M", 3, 7, "processors: 0 is not between"),
    "online node without spindles": ("uuid-1|2|", "uuid-1|0|", 3, 10, "spindles: 0 is not between"),
    "processors of no speed": ("|1|1.0\n", "|1|0.0\n", 3, 15, "processor speed: 0.0 is not above 0"),
    "unknown role": ("|24|M", "|24|X", 3, 8, "role: 'X' is none of Y, N, M"),
    "unknown group": ("|24|M|uuid-1", "|24|M|uuid-2", 3, 9, "group: no group has the uuid 'uuid-2'"),
    "neither exclusive nor not": ("rack:1|N", "rack:1|Z", 3, 12, "exclusive storage: 'Z' is none of Y, N"),
    "instance without a name": ("\nweb|", "\n|", 7, 1, "name: is empty"),
    "group that is there twice": ("\n\nnode1", "\nother|uuid-1|preferred||\n\nnode1", 2, 2, "'uuid-1' is there twice"),
    "negative size": ("web|1024", "web|-1024", 7, 2, "memory: -1024 is not between 0"),
    "unknown status": ("|running|", "|RUNNING|", 7, 5, "status: 'RUNNING' is none of running"),
    "neither balanced nor not": ("running|Y", "running|y", 7, 6, "auto_balance: 'y' is none of Y, N"),
    "unknown primary node": ("|Y|node1|node2", "|Y|node9|node2", 7, 7, "there is no node 'node9'"),
    "no primary node": ("|Y|node1|node2", "|Y||node2", 7, 7, "there is no node ''"),
    "unknown secondary node": ("|Y|node1|node2", "|Y|node1|node9", 7, 8, "there is no node 'node9'"),
    "the same node twice": ("|Y|node1|node2", "|Y|node1|node1", 7, 8, "needs a secondary node that is not its primary"),
    "mirrored without a secondary node": ("|Y|node1|node2", "|Y|node1|", 7, 8, "needs a secondary node"),
    "secondary node of a plain disk": ("|N|node1||", "|N|node1|node2|", 8, 8, "plain has no secondary node"),
    "unknown disk template": ("||plain|", "||zfs|", 8, 9, "disk template: 'zfs' is none of diskless"),
    "neither forthcoming nor not": ("|1|-|Y", "|1|-|y", 9, 13, "forthcoming: 'y' is none of Y, N"),
    "spindles that have to be known": ("rack:1|N", "rack:1|Y", 7, 12, "node 'node1' has exclusive storage"),
    "policy of an unknown group": ("\ndefault|128", "\nother|128", 14, 1, "no group has the name 'other'"),
    "two policies of the cluster": ("\ndefault|128", "\n|128", 14, 1, "the cluster has a policy already"),
    "size with too few numbers": ("\ndefault|128,1,", "\ndefault|128,", 14, 2, "a size has 6 numbers"),
    "odd number of sizes": (";1024,8,1048576,16,8,12|drbd,plain|0.05", "|drbd,plain|0.05", 14, 3, "in pairs"),
    "unknown template of a policy": ("drbd,plain|0.05", "drbd,raid|0.05", 14, 4, "'raid' is none of"),
    "ratio that is no number": ("0.05|32.0", ".05|32.0", 14, 5, "vcpu ratio: '.05' is no number"),
    "ratio of nothing": ("0.05|32.0", "0.05|0", 14, 6, "spindle ratio: 0 is not above 0"),
    "another line ending": ("net-1\n", "net-1\r\n", 1, None, "ends with a carriage return"),
    "section too many": ("0.05|32.0\n", "0.05|32.0\n\nx\n", 15, None, "a sixth section begins"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_named_with_its_line_and_column(fault: str) -> None:
    old, new, line, column, problem = FAULTS[fault]
    assert old in FILE
    with pytest.raises(ClusterFileError, match=re.escape(problem)) as caught:
        read_cluster(FILE.replace(old, new, 1))
    assert (caught.value.line, caught.value.column) == (line, column)
    where = f"line {line}:" if column is None else f"line {line}, column {column}: "
    assert str(caught.value).startswith(where)


@pytest.mark.parametrize("text", ["", "x", "default|uuid-1|preferred|\n", "\n\n"])
def test_file_that_ends_early_is_refused(text: str) -> None:
    with pytest.raises(ClusterFileError, match="the file ends in the section of"):
        read_cluster(text)


def test_whatever_hbal_cannot_load_is_refused(htools: Htools) -> None:
    assert htools.loads(FILE)
    refused = 0
    random = Random(1)
    for _ in range(150):
        text = _damaged(random)
        if not htools.loads(text):
            refused += 1
            with pytest.raises(ClusterFileError):
                read_cluster(text)
    assert refused > 20


def _damaged(random: Random) -> str:
    """The file with one column of one line, or the line itself, made something else."""
    lines = FILE.split("\n")
    index = random.randrange(len(lines))
    columns = lines[index].split("|")
    place = random.randrange(len(columns))
    match random.randrange(4):
        case 0:
            columns[place] = random.choice(("", "?", "x", "-1", "1.5", "Y", "node9", "1,2"))
        case 1:
            del columns[place]
        case 2:
            columns.insert(place, "x")
        case _:
            columns = random.choice(([], [*columns, ""]))
    lines[index] = "|".join(columns)
    return "\n".join(lines)

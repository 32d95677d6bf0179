"""Cells of Nova on a Galera cluster: the log of one node has the commits made through all of them."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest

from fleetlight.cells.kinds.nova_db.commit_log.log import ClusterCount
from scripts.servers.private import PrivateServer
from tests.integration.nova.test_commit_log import Writer, register
from tests.support.servers.galera import galera_cluster
from tests.support.servers.logged_nova import LoggedNova, followed_nova
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.night,
    pytest.mark.own_servers,
    pytest.mark.mariadb,
    pytest.mark.no_rerun,
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def nodes() -> Iterator[Sequence[PrivateServer]]:
    with galera_cluster() as started:
        yield started


def test_commits_through_every_node_are_followed_by_the_log_of_one_which_is_killed_and_comes_back(
    nodes: Sequence[PrivateServer], tmp_path: Path
) -> None:
    on = [LoggedNova(node, "galera_") for node in nodes]
    on[0].create(["api", "cell1"])
    with followed_nova(on[0], tmp_path / "fleetlight") as followed, ExitStack() as opened:
        cell = register(followed, "cell1")
        writers = [opened.enter_context(closing(Writer(each))) for each in on]
        with followed.indexer():
            followed.wait_until_fresh(cell.uuid)
            uuids = [writer.create(f"through {number}") for number, writer in enumerate(writers)]
            # The other nodes apply what was committed through one a moment later.
            for uuid in uuids:
                wait_until(partial(is_there, writers[0], uuid))
            followed.wait_until_fresh(cell.uuid)
            assert followed.differing(cell) == {}
            nodes[0].kill()
            writers[1].run("UPDATE instances SET display_name = 'while the node was away'")
            late = writers[2].create("late")
            nodes[0].start()
            followed.wait_until_fresh(cell.uuid)
            with closing(Writer(on[0])) as again:
                assert is_there(again, late)
            assert followed.differing(cell) == {}
            writers[1].run("UPDATE instances SET display_name = 'afterwards'")
            with closing(Writer(on[0])) as again:
                wait_until(lambda: again.run("SELECT 1 FROM instances WHERE display_name = 'afterwards'") == 4)
            followed.wait_until_fresh(cell.uuid)
            assert followed.differing(cell) == {}


def is_there(writer: Writer, uuid: str) -> bool:
    return writer.run("SELECT 1 FROM instances WHERE uuid = %s", uuid) == 1


def test_commit_of_the_cluster_that_the_log_lacks_is_noticed_and_others_are_not() -> None:
    clustered = ClusterCount()
    replicated = logged = 100

    def lacks(more_replicated: int, more_logged: int) -> bool:
        nonlocal replicated, logged
        replicated += more_replicated
        logged += more_logged
        return clustered.lacks(replicated, logged)

    assert not lacks(0, 0)
    assert not lacks(5, 5)
    # One that only this node has, with a number of its log.
    assert not lacks(0, 1)
    assert lacks(4, 3)
    assert not lacks(2, 2)

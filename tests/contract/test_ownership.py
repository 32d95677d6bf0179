"""Whose document it is: what comes for one cell takes no other cell's place, in whichever index."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from fleetlight.indexer.backends.base import OLDEST_TIME_VERSION, Document, IndexWriter
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.writing.ownership import GIVES_WAY, OwnWriter
from tests.support.fleets.documents import make_document, make_uuid
from tests.support.memory.memory_fleet import MemoryOwners
from tests.support.played.nova_cell import NOVA_CELL, MemoryNovaCell
from tests.support.servers.index_server import index_at

pytestmark = pytest.mark.no_rerun

BACKENDS = ["sqlite", pytest.param("elasticsearch", marks=pytest.mark.elasticsearch)]
HUGE = OLDEST_TIME_VERSION - 1


@pytest.fixture(params=BACKENDS)
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[IndexWriter]:
    settings = IndexSettings(backend="sqlite", path=tmp_path / "index.db")
    if request.param == "elasticsearch":
        settings = index_at(
            request.getfixturevalue("elasticsearch_url"),
            request.getfixturevalue("elasticsearch_prefix"),
        )
    with closing(open_writer(settings)) as writer:
        writer.prepare()
        yield writer


@pytest.fixture
def owners() -> MemoryOwners:
    return MemoryOwners()


def written(index: IndexWriter, owners: MemoryOwners, *documents: Document, cell: str) -> list[str]:
    """What was refused, as sentences."""
    result = OwnWriter(index, cell, owners).write(documents)
    return [rejection.reason for rejection in result.rejected]


def owner_of(index: IndexWriter, number: int) -> tuple[str, int]:
    document = index.read([make_uuid(number)])[make_uuid(number)]
    return document.cell_uuid, document.version


def test_huge_revision_of_another_cell_does_not_take_the_place_of_a_mapped_instance(
    index: IndexWriter, owners: MemoryOwners
) -> None:
    owners.cells[make_uuid(1)] = "c0"
    written(index, owners, make_document(1), cell="c0")
    forged = make_document(1, cell_uuid="c1", version=HUGE, display_name="forged")
    refused = written(index, owners, forged, make_document(2, cell_uuid="c1"), cell="c1")
    assert refused == ["the instance belongs to cell c0"]
    assert (owner_of(index, 1), owner_of(index, 2)) == (("c0", 1), ("c1", 1))


def test_deletion_that_another_cell_announces_is_refused(index: IndexWriter, owners: MemoryOwners) -> None:
    owners.cells[make_uuid(1)] = "c0"
    written(index, owners, make_document(1), cell="c0")
    assert written(index, owners, make_document(1, cell_uuid="c1", version=9, deleted=True), cell="c1")
    assert index.read([make_uuid(1)])[make_uuid(1)].record["deleted"] is False


def test_instance_that_is_not_in_the_index_yet_is_kept_for_the_cell_that_its_mapping_names(
    index: IndexWriter, owners: MemoryOwners
) -> None:
    owners.cells[make_uuid(1)] = "c0"
    assert written(index, owners, make_document(1, cell_uuid="c1", version=HUGE), cell="c1")
    assert not written(index, owners, make_document(1), cell="c0")
    assert owner_of(index, 1) == ("c0", 1)


def test_instance_that_has_moved_is_the_new_cells(index: IndexWriter, owners: MemoryOwners) -> None:
    owners.cells[make_uuid(1)] = "c0"
    written(index, owners, make_document(1, version=5), cell="c0")
    owners.cells[make_uuid(1)] = "c1"
    assert not written(index, owners, make_document(1, cell_uuid="c1", version=6), cell="c1")
    assert written(index, owners, make_document(1, version=7), cell="c0"), "what the old cell still says"
    assert owner_of(index, 1) == ("c1", 6)


def test_document_of_another_cell_that_was_read_needs_a_mapping_that_names_this_one(
    index: IndexWriter, owners: MemoryOwners
) -> None:
    index.write([make_document(1), make_document(2)])
    moved = [make_document(number, cell_uuid="c1", version=2) for number in (1, 2)]
    owners.cells[make_uuid(2)] = "c1"
    writer = OwnWriter(index, "c1", owners)
    writer.read([make_uuid(1), make_uuid(2)])
    assert [rejection.document.id for rejection in writer.write(moved).rejected] == [make_uuid(1)]
    assert (owner_of(index, 1), owner_of(index, 2)) == (("c0", 1), ("c1", 2))


def test_deployment_confirms_a_move_that_the_fleet_does_not_know(index: IndexWriter, owners: MemoryOwners) -> None:
    index.write([make_document(1), make_document(2)])
    deployment = MemoryNovaCell()
    deployment.mapped.add(make_uuid(2))
    writer = OwnWriter(index, "c1", owners, deployment)
    writer.read([make_uuid(1), make_uuid(2)])
    writer.write([make_document(number, cell_uuid="c1", version=2) for number in (1, 2)])
    assert (owner_of(index, 1), owner_of(index, 2)) == (("c0", 1), ("c1", 2))


def test_document_of_an_instance_that_the_deployment_has_in_another_cell_gives_way_to_any_other(
    index: IndexWriter, owners: MemoryOwners
) -> None:
    deployment = MemoryNovaCell(replace(NOVA_CELL, api_database_url="sqlite:///api.db"))
    deployment.elsewhere[make_uuid(1)] = "c0"
    owners.of_deployment = {"c0": "c0"}
    writer = OwnWriter(index, "c1", owners, deployment)
    for other in (GIVES_WAY + 1, GIVES_WAY + 2):
        writer.write([make_document(1, cell_uuid="c1", version=GIVES_WAY + 100)])
        index.write([make_document(1, version=other)])
        assert owner_of(index, 1) == ("c0", other)


def test_instance_that_the_deployment_has_in_a_cell_that_is_not_followed_is_written_as_any_other(
    index: IndexWriter, owners: MemoryOwners
) -> None:
    deployment = MemoryNovaCell(replace(NOVA_CELL, api_database_url="sqlite:///api.db"))
    deployment.elsewhere[make_uuid(1)] = "c0"
    writer = OwnWriter(index, "c1", owners, deployment)
    for version in (GIVES_WAY + 100, GIVES_WAY + 200):
        writer.write([make_document(1, cell_uuid="c1", version=version)])
        assert owner_of(index, 1) == ("c1", version)


def test_while_the_fleet_database_is_away_the_index_says_whose_an_instance_is(
    index: IndexWriter, owners: MemoryOwners
) -> None:
    index.write([make_document(1), make_document(2)])
    owners.is_away = True
    refused = written(
        index, owners, *(make_document(number, cell_uuid="c1", version=2) for number in (1, 3)), cell="c1"
    )
    assert len(refused) == 1
    assert not written(index, owners, make_document(2, version=2), cell="c0")
    assert [owner_of(index, number) for number in (1, 2, 3)] == [("c0", 1), ("c0", 2), ("c1", 2)]


def test_other_threads_may_forget_meanwhile_whose_instances_are(index: IndexWriter, owners: MemoryOwners) -> None:
    class ForgottenMeanwhile(dict[str, str]):
        """Another thread gets to it right after each look."""

        def __contains__(self, uuid: object) -> bool:
            return super().__contains__(uuid) and self.pop(str(uuid)) is not None

    writer = OwnWriter(index, "c1", owners)
    writer._elsewhere = ForgottenMeanwhile({make_uuid(1): "c0"})
    assert len(writer.write([make_document(1, cell_uuid="c1")]).rejected) == 1


def test_mappings_are_asked_once_for_all_that_is_written_together_and_not_again_at_once(
    index: IndexWriter, owners: MemoryOwners
) -> None:
    writer = OwnWriter(index, "c0", owners)
    for version in (1, 2):
        writer.write([make_document(number, version=version) for number in range(100)])
    assert owners.questions == 1

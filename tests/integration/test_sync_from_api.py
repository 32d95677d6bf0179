"""`fleetlight index sync --source api`: instances of one fleet into the index of another, through a real server."""

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest
from typer.testing import CliRunner

from fleetlight.api.app import create_app
from fleetlight.api.http.listening import address_of, listen
from fleetlight.api.identity import NoIdentity
from fleetlight.api.limits.request_deadlines import RequestDeadlines
from fleetlight.api.parts import ApiParts
from fleetlight.api.server import serve
from fleetlight.api.settings import ApiSettings
from fleetlight.cells.errors import UpstreamError
from fleetlight.cells.kinds.nova_api.client import ComputeApi, MarkerGoneError
from fleetlight.cells.upstream.credentials import Fixed
from fleetlight.cli.app import app
from fleetlight.cli.data_folder import DataFolder
from fleetlight.indexer.backends.base import IndexWriter, is_time
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.transform.documents import to_document
from fleetlight.listing.settings import SearchSettings
from fleetlight.manager.commands.embedded import set_up_cells, set_up_fleet
from fleetlight.resources.clock import system_clock
from tests.contract.compute_fleet import CELLS, ComputeFleet, compute_fleet
from tests.support.fleets.documents import make_record

pytestmark = pytest.mark.no_rerun


@pytest.fixture
def upstream(tmp_path: Path) -> Iterator[ComputeFleet]:
    (tmp_path / "upstream").mkdir()
    with compute_fleet(tmp_path / "upstream") as fleet:
        yield fleet


@contextmanager
def served(fleet: ComputeFleet) -> Iterator[str]:
    """The address of the compute API of that fleet, on a port of its own."""
    parts = ApiParts(
        cells=fleet.pool,
        fleet=fleet.fleet,
        native=fleet.native,
        api=ApiSettings(),
        search=SearchSettings(),
        identity=NoIdentity(),
    )
    listener, ready = listen("127.0.0.1", 0), Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    address = address_of(listener)
    thread = Thread(
        target=lambda: loop.run_until_complete(
            serve(
                create_app(parts).web,
                listener,
                stop,
                deadlines=RequestDeadlines(60, 60, 60),
                shutdown_timeout_s=60,
                on_ready=ready.set,
            )
        )
    )
    thread.start()
    try:
        assert ready.wait(60)
        yield f"{address}/v2.1"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(60)
        loop.close()


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    """Another fleet, of one cell, with an empty index."""
    folder = DataFolder(tmp_path / "data")
    folder.create()
    with closing(set_up_fleet(folder)) as fleet:
        [cell] = set_up_cells(folder, fleet, 1)
        cell.engine.dispose()
    return folder


@pytest.fixture
def index(folder: DataFolder) -> Iterator[IndexWriter]:
    with closing(open_writer(IndexSettings(path=folder.index_database))) as writer:
        writer.prepare()
        yield writer


def sync(folder: DataFolder, url: str, *options: str) -> tuple[int, str, str]:
    command = ["index", "sync", "--type", "OS::Nova::Server", "--source", "api", "--url", url, "--cell", "cell1"]
    result = CliRunner().invoke(app, [*command, "--data-dir", str(folder.path), *options])
    return result.exit_code, result.stdout, result.stderr


def test_servers_of_everybody_are_read_page_by_page_deleted_ones_too(
    upstream: ComputeFleet, folder: DataFolder, index: IndexWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETLIGHT_UPSTREAM_PAGE_SIZE", "3")
    uuids = [upstream.create(CELLS[n % 3], display_name=f"web-{n}", project_id=f"p{n}", host="h") for n in range(10)]
    upstream.operations(CELLS[0]).delete(uuids[0])
    with served(upstream) as url:
        assert sync(folder, url)[:2] == (0, "cell1: 10 instances synced, 1 of them deleted\n")
        documents = index.read(uuids)
        assert documents.keys() == set(uuids)
        for number, uuid in enumerate(uuids):
            document = documents[uuid]
            assert is_time(document.version)
            assert document.record["display_name"] == f"web-{number}"
            assert document.record["project_id"] == f"p{number}"
            assert document.record["deleted"] is (number == 0)
        before = {uuid: document.version for uuid, document in documents.items()}
        assert sync(folder, url)[0] == 0
        after = index.read(uuids)
        assert after[uuids[0]].version == before[uuids[0]], "a deletion is final"
        assert all(after[uuid].version > before[uuid] for uuid in uuids[1:])


def test_what_was_announced_meanwhile_and_what_the_cell_knows_itself_stays(
    upstream: ComputeFleet, folder: DataFolder, index: IndexWriter
) -> None:
    announced, own = (upstream.create(CELLS[0], display_name="old") for _ in range(2))
    later = system_clock() + 3_600_000_000
    with closing(set_up_fleet(folder)) as fleet:
        cell_uuid = fleet.cells()[0].uuid
    known = [
        to_document(cell_uuid, later, make_record(uuid=announced, display_name="newer", updated_at=later)),
        to_document(cell_uuid, 1, make_record(uuid=own, display_name="of the cell")),
    ]
    index.write(known)
    with served(upstream) as url:
        assert sync(folder, url)[0] == 0
    assert {uuid: document.record["display_name"] for uuid, document in index.read([announced, own]).items()} == {
        announced: "newer",
        own: "of the cell",
    }


@pytest.mark.parametrize("version", [1, 1_800_000_000_000_000])
def test_server_that_the_index_has_for_another_cell_stays_there(
    upstream: ComputeFleet, folder: DataFolder, index: IndexWriter, version: int
) -> None:
    """The fleet maps it to no cell, so nothing says that it has moved."""
    uuid = upstream.create(CELLS[0], display_name="of the API")
    there = to_document("another cell", version, make_record(uuid=uuid, display_name="there"))
    index.write([there])
    with served(upstream) as url:
        sync(folder, url)
    found = index.read([uuid])[uuid]
    assert (found.cell_uuid, found.record["display_name"]) == ("another cell", "there")


def test_api_that_refuses_is_named_without_the_credentials(
    upstream: ComputeFleet, folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETLIGHT_UPSTREAM_TOKEN", "very-secret")
    with served(upstream) as url:
        code, _, errors = sync(folder, url.replace("/v2.1", "/v9"))
    assert code == 1
    assert "refuses to list servers: status " in errors
    assert "very-secret" not in errors
    assert sync(folder, "ftp://nowhere")[0] == 1


def test_api_is_asked_for_one_cell(folder: DataFolder) -> None:
    command = ["index", "sync", "--type", "OS::Nova::Server", "--data-dir", str(folder.path)]
    for wrong in (
        ["--source", "api", "--url", "http://x"],
        ["--source", "api", "--cell", "cell1"],
        ["--url", "http://x"],
    ):
        assert CliRunner().invoke(app, [*command, *wrong]).exit_code == 2


def test_marker_that_has_gone_is_told_from_other_refusals(upstream: ComputeFleet) -> None:
    upstream.create(CELLS[0])
    with served(upstream) as url, closing(ComputeApi(url, Fixed({}))) as api:
        with pytest.raises(MarkerGoneError):
            api.servers((), limit=10, after="7d1f7e4c-2f43-4c56-8f6c-2f2f3c1f4a55")
        page = api.servers((), limit=10)
        assert (len(page.servers), page.has_more) == (1, False)
        assert api.servers((), limit=1).has_more
    with pytest.raises(UpstreamError, match="must be like"):
        ComputeApi("http://user:password@host/v2.1", Fixed({}))

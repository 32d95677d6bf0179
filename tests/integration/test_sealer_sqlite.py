"""As test_sealer.py, where the index is a file."""

import asyncio
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from fleetlight.indexer.backends.base import CellProgress
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.backends.sqlite.searcher import SqliteSearcher
from fleetlight.resources.clock import system_clock
from tests.support.fleets.indexer_worlds import new_world
from tests.support.waiting import wait_until

VANDALS = {
    "delete one": "DELETE FROM documents WHERE uuid = (SELECT min(uuid) FROM documents)",
    "alter all": "UPDATE documents SET display_name = 'altered'",
    "delete all, unseen": "DROP TRIGGER seal_documents_DELETE; DELETE FROM documents",
    "forget the seal": "DROP TABLE seal",
}


def test_lists_do_without_the_file_until_what_another_program_wrote_is_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetlight.indexer.reconcile.reconcile.LISTS_DELAY_S", 0.1)
    path = tmp_path / "index.db"
    index = IndexSettings(backend="sqlite", path=path)
    with (
        asyncio.Runner() as runner,
        new_world(tmp_path, "memory://", str(uuid4()), index) as world,
        world.relaying(),
        world.indexing(),
    ):
        for number in range(5):
            world.operations.create({"display_name": f"first {number}"})
        searcher = SqliteSearcher(path)

        def is_whole_since(moment: int) -> bool:
            found: CellProgress | None = dict(runner.run(searcher.progress())).get(world.cell.uuid)
            return found is not None and found.is_complete and found.fresh_as_of > moment

        wait_until(path.exists)
        for name, statements in VANDALS.items():
            wait_until(partial(is_whole_since, system_clock()), timeout_s=30)
            assert world.index_equals_cell(), f"before: {name}"
            with closing(sqlite3.connect(path)) as connection:
                connection.executescript(statements)
            wait_until(partial(is_whole_since, system_clock()), timeout_s=30)
            assert world.index_equals_cell(), f"after: {name}"
        runner.run(searcher.close())

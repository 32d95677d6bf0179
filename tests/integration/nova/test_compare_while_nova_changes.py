"""`fleetlight compare` beside a Nova whose servers change all the time, and a Fleetlight that follows its log."""

import os
import random
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from fleetlight.cells.upstream.credentials import Fixed
from fleetlight.cli.app import app
from fleetlight.cli.compare.catalogue import Catalogue
from fleetlight.cli.compare.comparison import Comparison
from fleetlight.cli.compare.questions import DETAILED, Question
from fleetlight.cli.compare.report import example_lines, facts, verdict
from fleetlight.cli.compare.sites import Site
from fleetlight.cli.compare.tally import Tally
from fleetlight.indexer.backends.settings import IndexSettings
from scripts.servers.private import private_server
from tests.integration.nova.test_storm import DurableMariaDB, nova_process, play, registered, said, started
from tests.nova.questions import requests_for
from tests.support.played.compared_apis import NEEDING_NEUTRON, WHO
from tests.support.servers.logged_nova import LoggedNova, followed_nova
from tests.support.servers.nova_api import nova_api

pytestmark = [
    pytest.mark.night,
    pytest.mark.own_servers,
    pytest.mark.mariadb,
    pytest.mark.nova,
    pytest.mark.no_rerun,
    pytest.mark.timeout(1800),
]

ROUNDS = int(os.environ.get("FLEETLIGHT_TEST_COMPARE_ROUNDS", "2"))
# Much more than the five seconds that the index may be behind: several tests share a machine.
SETTLE_S = 20.0
DATABASES = ("api", "cell0", "cell1", "cell2")


def assert_nothing_differs(nova: Site, ours: Site, questions: Iterator[Question | None], most: int | None) -> Tally:
    tally = Tally()
    Comparison(nova, ours, tally, SETTLE_S, lambda: None).run(questions, most=most, for_s=None)
    found = tally.document(nova.url, ours.url)
    assert [line for each in found["differences"] for line in (*example_lines(each), *each["curl"])] == []
    assert (tally.unanswered, tally.unsettled) == (0, 0)
    return tally


def until(done: "Future[str]", questions: Iterator[Question]) -> Iterator[Question]:
    while not done.done():
        yield next(questions)


def test_nothing_differs_while_nova_changes_and_when_it_rests(tmp_path: Path, nova_environment: str) -> None:
    draw = random.Random(20261129)
    with ExitStack() as stack:
        nova = LoggedNova(stack.enter_context(private_server(DurableMariaDB())), "nova_")
        process = stack.enter_context(nova_process(nova, tmp_path, nova_environment, {}))
        assert said(process) == "ready"
        nova.grant(DATABASES)
        index = IndexSettings(path=tmp_path / "fleetlight" / "index.db")
        followed = stack.enter_context(followed_nova(nova, tmp_path / "fleetlight", index))
        cells = registered(followed, iter(lambda: str(uuid4()), ""), None)
        url, _, _ = started(stack, tmp_path, followed)
        for cell in cells:
            followed.wait_until_fresh(cell.uuid)
        nova_url = stack.enter_context(nova_api(tmp_path, nova_environment))
        theirs = stack.enter_context(closing(Site("nova", nova_url, Fixed({}), None)))
        ours = stack.enter_context(closing(Site("fleetlight", f"{url}/v2.1", Fixed(WHO), None)))
        newest = theirs.newest()
        threads = stack.enter_context(ThreadPoolExecutor(1))
        for _ in range(ROUNDS):
            rows = theirs.ask(Question(DETAILED, (("all_tenants", "1"),), f"2.{newest}")).servers
            drawn = Catalogue(rows, newest, draw).questions()
            asked = (each for each in drawn if not NEEDING_NEUTRON & {name for name, _ in each.parameters})
            done = threads.submit(play, process, draw.getrandbits(32))
            tally = assert_nothing_differs(theirs, ours, until(done, asked), None)
            assert done.result() == "done"
            figures = tally.document("", "")
            print(verdict(figures), *facts(figures), sep="\n")  # noqa: T201  # the figures of the run
            assert tally.said_complete["true"] > tally.asked / 2
        assert assert_nothing_differs(theirs, ours, asked, 50).moving_requests == 0
        log = tmp_path / "access.log"
        lines = (
            f'10.0.0.4 - - [29/Nov/2026:12:00:00 +0000] "GET /v2.1{asked.path} HTTP/1.1" 200 2750 "-" "-"\n'
            for asked in requests_for("mariadb")[:30]
            if "all_tenants" in asked.path
        )
        log.write_text("".join(lines))
        options = ["--log", str(log), "--rate", "1000", "--settle", str(SETTLE_S)]
        result = CliRunner().invoke(app, ["compare", "--nova", nova_url, "--fleetlight", f"{url}/v2.1", *options])
        assert result.exit_code == 0, result.output

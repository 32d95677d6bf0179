"""The account that docs/operations/nova-databases.md describes can read all that is listed, and nothing else."""

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import URL

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.kinds.nova_db.adapter import NovaDbAdapter
from fleetlight.cells.kinds.nova_db.build_requests import NovaBuildRequests
from fleetlight.cells.kinds.nova_db.databases import open_nova_database, parse_nova_url, read
from fleetlight.cells.kinds.nova_db.deployment import Deployment
from fleetlight.cells.model import Cell
from fleetlight.query.filters import EVERYTHING
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import SortOrder
from fleetlight.resources.instance import INSTANCE_FIELDS
from tests.nova.questions import identifier
from tests.support.servers.nova import NovaWorld

# The databases are made before the first test, which takes Nova a while.
pytestmark = [pytest.mark.night, pytest.mark.timeout(600)]

PAGE = Path(__file__).parents[3] / "docs" / "operations" / "nova-databases.md"
EVERY_ROW = PageRequest(EVERYTHING, SortOrder.of(INSTANCE_FIELDS, ()), 1000)


def grants(which: str) -> list[str]:
    """The statements of the page for one kind of database."""
    found = re.search(rf"<!-- grants: {which} -->\n *```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return [line.strip() for line in found[1].strip().splitlines()]


def execute(url: URL, *statements: str) -> None:
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))
    engine.dispose()


@contextmanager
def account(world: NovaWorld) -> Iterator[dict[str, str]]:
    """Addresses of `api` and `cell1` with an account of our own."""
    name = f"fleetlight_{uuid4().hex[:12]}"
    urls = {database: parse_nova_url(world.urls[database]) for database in ("api", "cell1")}
    execute(urls["api"], f"CREATE USER {name}" + (" LOGIN" if world.server == "postgresql" else ""))
    try:
        for database, url in urls.items():
            statements = grants("api" if database == "api" else "cell")
            execute(url, *(statement.replace("TO fleetlight", f"TO {name}") for statement in statements))
        yield {database: url.set(username=name).render_as_string(hide_password=False) for database, url in urls.items()}
    finally:
        if world.server == "postgresql":
            for url in urls.values():
                execute(url, f"DROP OWNED BY {name}")
        execute(urls["api"], f"DROP USER {name}")


def test_account_with_these_grants_reads_everything_that_is_listed(nova_deployment: NovaWorld) -> None:
    if nova_deployment.server == "sqlite":
        # A file has no accounts; the statements are there to be tried on the others.
        assert grants("cell")
        assert grants("api")
        return
    with account(nova_deployment) as urls:
        cell = Cell(str(uuid4()), "cell1", CellKind.NOVA_DB, urls["cell1"], "", api_database_url=urls["api"])
        with closing(NovaDbAdapter(cell)) as adapter:
            rows = {row.uuid: row.record for row in adapter.read_page(EVERY_ROW)}
            assert adapter.host_statuses()
        web = rows[identifier("web-1")]
        assert (web["pinned_availability_zone"], len(web["server_groups"]), len(web["tags"])) == ("east", 1, 2)
        assert rows[identifier("broken")]["fault"]["message"] == "It broke."
        waiting = Cell(str(uuid4()), "waiting", CellKind.NOVA_DB, urls["api"], "", api_database_url=urls["api"])
        with closing(NovaBuildRequests(waiting)) as adapter:
            assert {row.uuid for row in adapter.read_page(EVERY_ROW)} >= {identifier("waiting")}
        with closing(Deployment(urls["api"])) as deployment:
            assert len(deployment.cells()) == len(deployment.transport_urls()) == 3
            mapping = deployment.mapping_of(identifier("web-1"))
            assert mapping is not None
            assert deployment.groups_of(identifier("web-1"), None) == web["server_groups"]
            assert deployment.groups_of(identifier("web-1"), mapping.project_id) == web["server_groups"]
            assert deployment.groups_of(identifier("web-1"), "other") == []


def test_it_can_neither_read_secrets_nor_write(nova_deployment: NovaWorld) -> None:
    if nova_deployment.server == "sqlite":
        engine = open_nova_database(nova_deployment.urls["cell1"])
        with pytest.raises(sa.exc.OperationalError, match="readonly"):
            read(engine, lambda connection: connection.execute(sa.text("DELETE FROM tags")))
        engine.dispose()
        return
    with account(nova_deployment) as urls:
        for database, statement in (
            ("cell1", "SELECT connection_info FROM block_device_mapping"),
            ("cell1", "SELECT cpu_info FROM compute_nodes"),
            ("api", "SELECT disabled FROM cell_mappings"),
            ("cell1", "DELETE FROM tags"),
        ):
            # Without the guard of our own sessions.
            engine = sa.create_engine(parse_nova_url(urls[database]))
            with engine.connect() as connection, pytest.raises(sa.exc.DBAPIError, match="denied"):
                connection.execute(sa.text(statement))
            engine.dispose()

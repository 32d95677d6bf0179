"""Worker, agents and Redis as processes that are killed at any moment: no guest runs twice, and none is forgotten."""

import os
import random
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.errors import CellError
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.migrations import upgrade_cell, upgrade_fleet
from fleetlight.manager.agents.certificates import Role
from fleetlight.manager.operations.hosts.agent_addresses import AgentAddresses
from scripts.servers.private import PrivateServer, private_server
from scripts.servers.process import free_port
from scripts.servers.redis import DurableRedis
from tests.support.commands import Command
from tests.support.fleets.acting_cell import FLAVOR, REQUEST, ActingCell
from tests.support.played.agents import Certificates
from tests.support.waiting import wait_until

# Most of it is that processes start, which a machine with other things to do takes its time for.
pytestmark = [pytest.mark.night, pytest.mark.redis, pytest.mark.timeout(300)]

HOSTS = ("host1", "host2")
_ACTIONS = ("os-stop", "os-start", "os-migrateLive", "os-migrateLive", "delete", "create", "create")


class Program:
    """A process of the command, which can be killed, and started again."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self._log = log
        self._arguments = arguments
        self._process: Command | None = None
        self.start()

    def start(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("FLEETLIGHT_")}
        self._process = Command(*self._arguments, log=self._log, environment=environment)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)


class Killed:
    """A cell with a worker, an agent on each host, and a Redis. Every one of them may be killed."""

    def __init__(self, folder: Path, acting: ActingCell, redis: PrivateServer) -> None:
        self._folder = folder
        self._acting = acting
        self._redis = redis
        certificates = Certificates(folder / "certificates" / "one")
        certificates.files(Role.WORKER, "worker")
        config = folder / "fleetlight.toml"
        config.write_text(
            f'[fleet]\ndatabase_url = "sqlite:///{folder}/fleet.db"\n'
            f'[nodes]\ncertificates_dir = "{folder}/certificates"\ncache_url = "{redis.url}"\n'
            "retry_s = 300\nrefresh_interval_s = 0\n"
        )
        self.agents = [self._agent(host, certificates) for host in HOSTS]
        self.worker = Program(folder / "worker.log", "worker", "--config", str(config))

    def _agent(self, host: str, certificates: Certificates) -> Program:
        node, port = f"{host}.example.org", str(free_port())
        AgentAddresses(self._acting.engine, self._acting.cell).set(host, f"127.0.0.1:{port}")
        files = certificates.files(Role.AGENT, node)
        of_files = ("--certificate", str(files.certificate), "--key", str(files.key), "--trusted", str(files.trusted))
        place = ("--folder", str(self._folder / host), "--host", "127.0.0.1", "--port", port)
        return Program(self._folder / f"{host}.log", "node-agent", node, *of_files, *place)

    def kill_worker(self) -> None:
        self.worker.kill()
        self.worker.start()

    def kill_redis(self) -> None:
        self._redis.kill()
        self._redis.start()

    def kill_agents(self) -> None:
        """Both at once, look at what they have, and start them again."""
        for agent in self.agents:
            agent.kill()
        self.check_that_nothing_runs_twice()
        for agent in self.agents:
            agent.start()

    def check_that_nothing_runs_twice(self) -> None:
        """While no agent runs."""
        running = [guest for host in HOSTS for guest in self.guests(host)]
        assert len(running) == len(set(running)), f"a guest runs twice: {running}"

    def guests(self, host: str) -> list[str]:
        """Those that run on the disk of a host; one that is leaving runs where it arrives, once it has."""
        with closing(sqlite3.connect(self._folder / host / "agent.db")) as connection:
            rows = connection.execute("SELECT name FROM guests WHERE NOT is_arriving AND NOT is_leaving")
            return [name for (name,) in rows]

    def volumes(self, host: str) -> set[str]:
        with closing(sqlite3.connect(self._folder / host / "agent.db")) as connection:
            return {name for (name,) in connection.execute("SELECT name FROM volumes")}

    def close(self) -> None:
        for program in (self.worker, *self.agents):
            program.kill()


@contextmanager
def killed_cell(folder: Path) -> Iterator[tuple[Killed, ActingCell]]:
    fleet_engine = create_database_engine(f"sqlite:///{folder}/fleet.db")
    upgrade_fleet(fleet_engine)
    with ExitStack() as stack:
        fleet = stack.enter_context(closing(Fleet(fleet_engine)))
        cell = fleet.add_cell("one", CellKind.NATIVE, f"sqlite:///{folder}/one.db", "memory://")
        engine = create_database_engine(cell.database_url)
        stack.callback(engine.dispose)
        upgrade_cell(engine)
        acting = ActingCell(engine, fleet, cell, HOSTS)
        redis = stack.enter_context(private_server(DurableRedis()))
        yield stack.enter_context(closing(Killed(folder, acting, redis))), acting


def ask_for_something(acting: ActingCell, uuids: list[str], chance: random.Random) -> None:
    """Something that somebody may want, unless the state of the instance forbids it."""
    action, uuid = chance.choice(_ACTIONS), chance.choice(uuids)
    if action == "create":
        if len(uuids) < 12:
            uuids += [row.uuid for row in acting.acceptance.create([{"flavor": FLAVOR}], {}, REQUEST)]
        return
    host = acting.record(uuid)["host"]
    wanted = {"host": "host2" if host == "host1" else "host1"} if action == "os-migrateLive" else {}
    try:
        acting.accept(uuid, action, is_admin=True, **wanted)
    except CellError:
        return


def wait_for_more(acting: ActingCell, events: int) -> None:
    """Until so much more has happened, or nothing more happens."""
    reached = len(acting.events()) + events
    wait_until(lambda: len(acting.events()) >= reached or acting.count_live_jobs() == 0, 120)


def test_what_is_killed_at_any_moment_starts_nothing_twice_and_forgets_nothing(tmp_path: Path) -> None:
    chance = random.Random(20261125)
    with killed_cell(tmp_path) as (killed, acting):
        uuids = [row.uuid for row in acting.acceptance.create([{"flavor": FLAVOR}] * 4, {}, REQUEST)]
        kills = [killed.kill_worker, killed.kill_agents, killed.kill_redis, killed.kill_worker]
        chance.shuffle(kills)
        for kill in kills:
            for _ in range(10):
                ask_for_something(acting, uuids, chance)
            wait_for_more(acting, chance.randrange(1, 10))
            kill()
        wait_until(lambda: acting.count_live_jobs() == 0, 120)
        killed.close()
        killed.check_that_nothing_runs_twice()
        records = [record for uuid in uuids if not (record := acting.record(uuid))["deleted"]]
        assert {record["vm_state"] for record in records} <= {"active", "stopped"}, "every job has succeeded"
        for host in HOSTS:
            here = [record for record in records if record["host"] == host]
            assert sorted(killed.guests(host)) == sorted(
                record["uuid"] for record in here if record["vm_state"] == "active"
            )
            assert {name.split(".")[0] for name in killed.volumes(host)} == {record["uuid"] for record in here}
        acting.check_revisions()

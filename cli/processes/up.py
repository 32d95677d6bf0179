"""`fleetlight up`: everything in one process, without any server."""

import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from socket import socket
from typing import Annotated

import structlog
import typer
from prometheus_client import CollectorRegistry

from api.http.listening import address_of
from api.identity import Identity, refuse_open_listening
from api.identity.opening import open_identity
from cells.fleet.cell_keys import Keyring
from cells.fleet.fleet import Fleet
from cells.kinds.native.relay_metrics import RelayMetrics
from cli.clouds import ADMIN, is_for, write_clouds, write_open_clouds
from cli.data_folder import DEFAULT_DATA_DIR, DataFolder
from cli.errors import ConfigurationError
from cli.logging import configure_logging
from cli.options import (
    AuthOption,
    ConfigOption,
    HostOption,
    InsecureOption,
    PortOption,
    examples,
    named_folder,
    program,
)
from cli.output import counted, print_notice, print_result
from cli.processes.embedded import EmbeddedCell, lift_quotas, set_up_cells, set_up_fleet
from cli.processes.first_users import set_up_users
from cli.processes.following import keep_indexing, run_relay, worker_of
from cli.processes.parts import Part, raise_failure, stop_all
from cli.processes.serving import Stop, listen_as_told, serve_until_stopped
from cli.processes.simulated_agents import SimulatedAgents
from cli.settings import Settings, load_embedded_settings, with_api_options
from indexer.backends.opening import open_writer
from indexer.errors import IndexerError
from indexer.metrics import IndexerMetrics
from indexer.stream.probes import IndexerProbes
from operations.jobs.metrics import WorkerMetrics
from operations.nodes.metrics import CacheCounts
from operations.nodes.opening import NodeRpcs
from operations.simulation.simulated_instances import PROJECTS, hosts_for
from operations.simulation.simulator import Simulator

app = typer.Typer()

_log = structlog.get_logger(__name__)

_INSTANCES = 200
_RATE = 5.0
# How curl says who is calling, by `api.auth`, where that is not decided by the files of this folder.
_LOGINS = {"basic": " -u USER", "keystone": ' -H "X-Auth-Token: $(openstack token issue -f value -c id)"'}


@app.command(
    epilog=examples(
        "fleetlight up --simulate",
        "fleetlight up --simulate --instances 10000 --rate 50 --cells 8",
        "fleetlight up --simulate --agents 3",
        "fleetlight up --data-dir /var/lib/fleetlight --port 8775",
    )
)
def up(
    *,
    data_dir: Annotated[
        Path,
        typer.Option(
            "--data-dir",
            metavar="DIR",
            parser=named_folder,
            envvar="FLEETLIGHT_DATA_DIR",
            help="Folder that holds everything; made if missing.",
        ),
    ] = DEFAULT_DATA_DIR,
    cells: Annotated[int, typer.Option(min=1, max=200, help="Cells to have; those that are there stay.")] = 3,
    simulate: Annotated[bool, typer.Option("--simulate", help="Fill the cells and keep them busy.")] = False,
    instances: Annotated[
        int | None,
        typer.Option(min=0, help=f"With --simulate: instances to keep, over all cells; {_INSTANCES} unless given."),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1000,
            help="With --simulate: operations per second, of which each is several changes, 0 for none; "
            f"{_RATE:g} unless given.",
        ),
    ] = None,
    agents: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=100,
            help="With --simulate: hosts of the first cell with an agent of their own; those there stay.",
        ),
    ] = None,
    host: HostOption = None,
    port: PortOption = None,
    auth: AuthOption = None,
    insecure: InsecureOption = False,
    config: ConfigOption = None,
) -> None:
    """Run a whole fleet in this process: cells, bus, indexer and API, on SQLite files in one folder.

    Stop it at any moment and start it again: nothing is lost and nothing is doubled.
    """
    if not simulate and (instances, rate, agents) != (None, None, None):
        raise ConfigurationError("--instances, --rate and --agents say what to simulate: add --simulate")
    folder = DataFolder(data_dir)
    settings = with_api_options(load_embedded_settings(config, folder), host, port, auth)
    if settings.api.auth == "none":
        refuse_open_listening(settings.api.host, insecure=insecure)
    configure_logging(settings.log)
    with _listening(folder, settings) as listener:
        # The folder may be one that others can look into; what the databases hold is nobody else's business.
        os.umask(0o077)
        fleet = set_up_fleet(folder, settings.fleet.failure_limits)
        wanted = (_INSTANCES if instances is None else instances) if simulate else 0
        embedded = set_up_cells(folder, fleet, cells, hosts_for(-(-wanted // cells)))
        if len(embedded) > cells:
            print_notice(
                f"{folder.path} has {counted(len(embedded), 'cell')}; none is removed because of --cells {cells}"
            )
        _prepare_index(settings)
        passwords = _set_up_logins(folder, settings, address_of(listener), PROJECTS if simulate else ())
        identity = open_identity(settings.api, settings.identity, settings.keystone)
        simulated_agents = SimulatedAgents(folder, fleet, embedded[0], agents or 0)
        process = _Process(settings, fleet, identity, embedded, simulated_agents)
        if simulate:
            lift_quotas(fleet, PROJECTS)
            simulated = [cell.simulated(fleet) for cell in embedded]
            process.simulator = Simulator(
                simulated,
                instance_count=wanted,
                rate=_RATE if rate is None else rate,
            )
        banner = _banner(address_of(listener), folder, settings, passwords, _Commands(folder, config))
        process.run(listener, banner)
    process.raise_failure()
    _log.info("stopped")


@contextmanager
def _listening(folder: DataFolder, settings: Settings) -> Iterator[socket]:
    """The socket to serve at, with the folder for this process alone. Raises CommandError, which leaves no new folder.

    Who runs in a folder most likely has the port too: then the folder is what to speak of.
    """
    with ExitStack() as stack:
        listener = None if folder.path.exists() else stack.enter_context(closing(listen_as_told(settings.api)))
        folder.create()
        stack.enter_context(folder.locked())
        yield listener or stack.enter_context(closing(listen_as_told(settings.api)))


def _prepare_index(settings: Settings) -> None:
    """Make the index before the first list asks for it, which would put it aside until the next start."""
    try:
        with closing(open_writer(settings.index)) as writer:
            writer.prepare()
    except IndexerError as error:
        # Lists are answered by the cells, and the indexer goes on trying.
        _log.warning("index.unavailable", reason=str(error))


class _Process:
    """The parts of one `fleetlight up`, and the order in which they start and stop."""

    def __init__(
        self,
        settings: Settings,
        fleet: Fleet,
        identity: Identity,
        cells: Sequence[EmbeddedCell],
        agents: SimulatedAgents,
    ) -> None:
        self.simulator: Simulator | None = None
        self._settings = settings
        self._fleet = fleet
        self._identity = identity
        self._cells = cells
        self._agents = agents
        self._metrics = CollectorRegistry()
        self._nodes = NodeRpcs(settings.nodes, CacheCounts(self._metrics), is_alone=True)
        self._probes = IndexerProbes()
        self._agent_processes: list[Part] = []
        self._simulating: list[Part] = []
        self._workers: list[Part] = []
        self._relays: list[Part] = []
        self._indexing: list[Part] = []

    def raise_failure(self) -> None:
        """Raises CommandError if a part has failed."""
        raise_failure(self._all_parts())

    def _all_parts(self) -> Sequence[Part]:
        return *self._simulating, *self._workers, *self._agent_processes, *self._relays, *self._indexing

    def run(self, listener: socket, banner: str) -> None:
        """Returns when everything has ended, in the order of the data: what comes first stops first.

        banner: printed when requests are answered.
        """

        def on_ready(stop: Stop) -> None:
            print_result(banner)
            self._start(stop)

        try:
            serve_until_stopped(
                self._settings,
                self._fleet,
                self._identity,
                listener,
                on_ready,
                other_metrics=[self._metrics],
                indexer=self._probes,
                nodes=self._nodes,
            )
        finally:
            for parts in (self._simulating, self._workers, self._agent_processes, self._relays, self._indexing):
                stop_all(parts)
            for cell in self._cells:
                cell.engine.dispose()
            self._nodes.close()
            self._fleet.close()

    def _start(self, stop: Stop) -> None:
        settings = self._settings
        # The indexer looks whether there are new ones, for itself and for the relays.
        keys = Keyring(self._fleet.cell_keys, self._fleet.clock)
        indexing = partial(
            keep_indexing,
            settings,
            self._fleet,
            IndexerMetrics(self._metrics),
            watching=self._probes.watching,
            keys=keys,
        )
        self._indexing = [Part("indexer", indexing, stop)]
        relay = partial(run_relay, settings, RelayMetrics(self._metrics), keys=keys, clock=self._fleet.clock)
        self._relays = [Part(f"relay-{cell.cell.name}", partial(relay, cell.cell), stop) for cell in self._cells]
        if self._agents.hosts:
            self._agent_processes = [Part("agents", self._agents.run, stop)]
        metrics = WorkerMetrics(self._metrics)
        workers = {
            cell.cell.name: worker_of(settings, cell.engine, self._fleet, cell.cell, rpcs=self._nodes, metrics=metrics)
            for cell in self._cells
        }
        self._workers = [Part(f"worker-{name}", worker.run, stop) for name, worker in workers.items()]
        if self.simulator is not None:
            self._simulating = [Part("simulator", self.simulator.run, stop)]


def _set_up_logins(folder: DataFolder, settings: Settings, address: str, projects: Sequence[str]) -> Mapping[str, str]:
    """Users and clouds.yaml, where the users are those of the folder; returns the passwords that were just made."""
    if settings.api.auth == "none" and not write_open_clouds(folder, address):
        print_notice(f"{folder.clouds_file} stays as it is: its logins are for --auth tokens")
    if settings.api.auth != "tokens" or settings.identity.file != folder.identity_file:
        return {}
    passwords = set_up_users(folder, projects)
    write_clouds(folder, address, settings.identity.region, passwords)
    return passwords


class _Commands:
    """Commands of this program for this fleet, to be pasted into a shell."""

    def __init__(self, folder: DataFolder, config: Path | None) -> None:
        self._options: list[str] = []
        if folder.path != DataFolder(DEFAULT_DATA_DIR).path:
            self._options += ["--data-dir", str(folder.path)]
        if config is not None:
            self._options += ["--config", str(config)]

    def of(self, *words: str) -> str:
        return " ".join((program(), *words, *map(shlex.quote, self._options)))


def _banner(
    address: str, folder: DataFolder, settings: Settings, passwords: Mapping[str, str], commands: _Commands
) -> str:
    clouds, header = [], _LOGINS.get(settings.api.auth, "")
    if settings.api.auth == "tokens":
        header = f' -H "X-Auth-Token: $({commands.of("identity", "token", ADMIN)})"'
    if is_for(folder, settings.api.auth):
        variable = f"OS_CLIENT_CONFIG_FILE={shlex.quote(str(folder.clouds_file))}"
        # Apart from the others: it is another program, which has to be installed first.
        clouds = [
            "",
            "With python-openstackclient:",
            "",
            f"  {variable} openstack --os-cloud fleetlight server list --long --all-projects",
        ]
    lines = (
        "",
        f"Fleetlight runs. The API is at {address}/v2.1 and the data in {folder.path}. Try:",
        "",
        f"  curl -si{header} '{address}/v2.1/servers?limit=3&sort_key=display_name&sort_dir=asc'",
        f"  curl -si{header} '{address}/v2.1/servers/detail?status=ACTIVE&limit=1' -H 'Fleetlight-Consistency: strong'",
        f"  {commands.of('index', 'status')}",
        *clouds,
        *_logins(folder, passwords),
        "",
        "Stop it with Ctrl-C.",
        "",
    )
    return "\n".join(lines)


def _logins(folder: DataFolder, passwords: Mapping[str, str]) -> Sequence[str]:
    """The passwords that were just made, for people on a terminal; files and journals of services would keep them."""
    if not passwords:
        return ()
    if not sys.stdout.isatty():
        return "", f"The passwords of {' and '.join(passwords)} are in {folder.clouds_file}."
    users = (f"  user {name}, password {password}" for name, password in passwords.items())
    return "", f"Logins, shown this once and kept in {folder.clouds_file}:", "", *users

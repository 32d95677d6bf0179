"""`fleetlight up`: runs a whole fleet by one command, without any server."""

import shlex
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from socket import socket
from threading import Event
from typing import TYPE_CHECKING, Annotated

import structlog
import typer
from prometheus_client import CollectorRegistry

from fleetlight.api.http.listening import address_of
from fleetlight.api.identity import refuse_open_listening
from fleetlight.cells.fleet.cell_keys import Keyring
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.native.relay_metrics import RelayMetrics
from fleetlight.cli.clouds import ADMIN, is_for, write_clouds, write_open_clouds
from fleetlight.cli.data_folder import DEFAULT_DATA_DIR, DataFolder
from fleetlight.cli.errors import ConfigurationError
from fleetlight.cli.fleet import open_fleet
from fleetlight.cli.interpreter import keep_collector_out_of_the_way
from fleetlight.cli.logging import configure_logging
from fleetlight.cli.options import (
    AuthOption,
    ConfigOption,
    HostOption,
    InsecureOption,
    PortOption,
    examples,
    named_folder,
    program,
)
from fleetlight.cli.output import counted, print_notice, print_result
from fleetlight.cli.processes.delivering import run_deliverer
from fleetlight.cli.processes.first_users import LINK_LIFETIME_S, login_link, set_up_users
from fleetlight.cli.processes.following import keep_indexing
from fleetlight.cli.processes.listening import listen_as_configured
from fleetlight.cli.processes.parts import ProcessPart, Run, raise_failure, stop_all
from fleetlight.cli.processes.relaying import run_relay
from fleetlight.cli.processes.signals import signals_answered
from fleetlight.cli.processes.supervising import Child, ChildContext, supervise
from fleetlight.cli.processes.tracing import opened_traces
from fleetlight.cli.secret_files import kept_or_new, new_password
from fleetlight.cli.settings import Settings, load_embedded_settings, with_api_options
from fleetlight.delivery.metrics import DelivererMetrics
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.errors import IndexerError
from fleetlight.indexer.metrics import IndexerMetrics
from fleetlight.indexer.stream.probes import IndexerProbes
from fleetlight.manager.commands.embedded import EmbeddedCell, lift_quotas, set_up_cells, set_up_fleet
from fleetlight.manager.commands.simulated_agents import SimulatedAgents
from fleetlight.manager.commands.working import worker_of
from fleetlight.manager.operations.jobs.metrics import WorkerMetrics
from fleetlight.manager.operations.nodes.opening import NodeRpcs, opened_nodes
from fleetlight.manager.operations.simulation.simulated_instances import PROJECTS, hosts_for
from fleetlight.manager.operations.simulation.simulator import Simulator

if TYPE_CHECKING:
    from fleetlight.bus.traces import Traces
    from fleetlight.cli.processes.serving import SharedApiState

app = typer.Typer()

_log = structlog.get_logger(__name__)

_BACKGROUND = "background"
_INSTANCES = 200
_RATE = 5.0
# How curl names the user, by `api.auth`, if the users are not those in this folder.
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
            help="The folder for all data; created if missing.",
        ),
    ] = DEFAULT_DATA_DIR,
    cells: Annotated[int, typer.Option(min=1, max=200, help="How many cells the fleet has; existing ones stay.")] = 3,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Fill the cells, keep them busy, and let them take announcements.")
    ] = False,
    instances: Annotated[
        int | None,
        typer.Option(min=0, help=f"With --simulate: number of instances in all cells; {_INSTANCES} by default."),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1000,
            help="With --simulate: operations per second, of which each is several changes, 0 for none; "
            f"{_RATE:g} by default.",
        ),
    ] = None,
    agents: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=100,
            help="With --simulate: number of hosts in the first cell with their own agents; existing ones stay.",
        ),
    ] = None,
    host: HostOption = None,
    port: PortOption = None,
    auth: AuthOption = None,
    insecure: InsecureOption = False,
    config: ConfigOption = None,
) -> None:
    """Run a whole fleet by one command: cells, bus, indexer and API, on SQLite files in one folder.

    Stop it at any moment and start it again: nothing is lost and nothing is doubled.
    """
    if not simulate and (instances, rate, agents) != (None, None, None):
        raise ConfigurationError("--instances, --rate and --agents say what to simulate: add --simulate")
    folder = DataFolder(data_dir)
    settings = with_api_options(load_embedded_settings(config, folder), host, port, auth)
    if settings.api.auth == "none":
        refuse_open_listening(settings.api.host, insecure=insecure)
    configure_logging(settings.log)
    with _listening(folder, settings) as listeners:
        address = address_of(listeners[0])
        fleet = set_up_fleet(folder, settings.fleet.failure_limits)
        wanted = (_INSTANCES if instances is None else instances) if simulate else 0
        embedded = set_up_cells(folder, fleet, cells, hosts_for(-(-wanted // cells)))
        if len(embedded) > cells:
            print_notice(
                f"{folder.path} has {counted(len(embedded), 'cell')}; none is removed because of --cells {cells}"
            )
        _prepare_index(settings)
        passwords = _set_up_logins(folder, settings, address, PROJECTS if simulate else ())
        simulated_agents = SimulatedAgents(folder, fleet, embedded[0], agents or 0)
        if simulate:
            lift_quotas(fleet, PROJECTS)
            for cell in embedded:
                fleet.set_takes_announcements(cell.cell.uuid, True)
        # Children open their own: none of them may use what another one has opened.
        fleet.close()
        for cell in embedded:
            cell.engine.dispose()
        simulation = (wanted, _RATE if rate is None else rate) if simulate else None
        background = _Background(settings, embedded, simulated_agents, simulation)
        from fleetlight.cli.processes.serving import SharedApiState, api_children  # noqa: PLC0415 -- other commands would start a quarter later

        shared = SharedApiState.of(settings, partial(kept_watch_key, folder))
        banner = _banner(address, folder, settings, passwords, _Commands(folder, config))
        supervise(
            [
                api_children(listeners, partial(_serve, shared), settings.api),
                [Child(_BACKGROUND, background.run)],
            ],
            settings.monitoring,
            partial(print_result, banner),
        )
    _log.info("stopped")


def kept_watch_key(folder: DataFolder) -> str:
    """The key of cursors, kept in the folder so that cursors survive a restart. Raises CommandError."""
    return kept_or_new(folder.watch_key, new_password)[0]


def _serve(shared: "SharedApiState", listener: socket, number: int, context: ChildContext) -> None:
    with open_fleet(shared.settings.fleet) as fleet:
        shared.serve(fleet, listener, number, context, indexer=context.siblings[_BACKGROUND])


@contextmanager
def _listening(folder: DataFolder, settings: Settings) -> Iterator[Sequence[socket]]:
    """Open the sockets to serve at, and lock the folder. If this raises CommandError, it leaves no new folder.

    A process that runs in the folder most likely also has the port; the error then names the folder.
    """
    with ExitStack() as stack:
        listeners = () if folder.path.exists() else _kept_open(stack, settings)
        folder.create()
        stack.enter_context(folder.locked())
        yield listeners or _kept_open(stack, settings)


def _kept_open(stack: ExitStack, settings: Settings) -> Sequence[socket]:
    return [stack.enter_context(listener) for listener in listen_as_configured(settings.api)]


def _prepare_index(settings: Settings) -> None:
    """Create the index before the first list uses it, or else lists would do without it until the next start."""
    try:
        with closing(open_writer(settings.index)) as writer:
            writer.prepare()
    except IndexerError as error:
        # The cells answer lists meanwhile, and the indexer goes on trying.
        _log.warning("index.unavailable", reason=str(error))


class _Background:
    """All parts of `fleetlight up` except the API, in one process, which has the cells' buses in memory."""

    def __init__(
        self,
        settings: Settings,
        cells: Sequence[EmbeddedCell],
        agents: SimulatedAgents,
        simulation: tuple[int, float] | None,
    ) -> None:
        """simulation: instances to keep and operations per second; None simulates nothing."""
        self._settings = settings
        self._cells = cells
        self._agents = agents
        self._simulation = simulation

    def run(self, context: ChildContext) -> None:
        """Run the parts. Returns after SIGTERM, or when a part has failed; then it raises CommandError.

        Parts stop in the order of the data flow: a part that produces data stops before those that consume it.
        """
        keep_collector_out_of_the_way()
        stop = Event()
        metrics, probes = CollectorRegistry(), IndexerProbes()
        with (
            signals_answered(lambda _: stop.set(), [signal.SIGTERM]),
            open_fleet(self._settings.fleet) as fleet,
            opened_nodes(self._settings.nodes, metrics) as nodes,
            opened_traces(self._settings.traces) as traces,
        ):
            stages = self._stages(fleet, nodes, metrics, probes, traces)
            parts: list[list[ProcessPart]] = []
            try:
                with context.answering(metrics, probes):
                    # Consumers start before producers.
                    for stage in reversed(stages):
                        parts.append([ProcessPart(name, run, stop.set) for name, run in stage.items()])
                    context.is_ready()
                    stop.wait()
            finally:
                for started in reversed(parts):
                    stop_all(started)
                for cell in self._cells:
                    cell.engine.dispose()
        raise_failure([part for started in parts for part in started])

    def _stages(
        self,
        fleet: Fleet,
        nodes: NodeRpcs,
        metrics: CollectorRegistry,
        probes: IndexerProbes,
        traces: "Traces | None",
    ) -> Sequence[Mapping[str, Run]]:
        """The parts by name, in the order in which they stop."""
        settings = self._settings
        # The indexer refreshes the keys, for itself and for the relays.
        keys = Keyring(fleet.cell_keys, fleet.clock)
        relay = partial(run_relay, settings, RelayMetrics(metrics), keys=keys, clock=fleet.clock, traces=traces)
        indexing = partial(
            keep_indexing,
            settings,
            fleet,
            IndexerMetrics(metrics),
            watching=probes.watching,
            keys=keys,
            traces=traces,
        )
        working = partial(worker_of, settings, rpcs=nodes, metrics=WorkerMetrics(metrics), traces=traces)
        simulating: dict[str, Run] = {}
        if self._simulation is not None and not all(cell.is_down for cell in self._cells):
            simulating["simulator"] = self._simulator(fleet, *self._simulation).run
        return [
            simulating,
            {f"worker-{cell.cell.name}": working(cell.engine, fleet, cell.cell).run for cell in self._cells},
            {"agents": self._agents.run} if self._agents.hosts else {},
            {f"relay-{cell.cell.name}": partial(relay, cell.cell) for cell in self._cells},
            {"indexer": indexing, "deliverer": partial(run_deliverer, settings, fleet, DelivererMetrics(metrics))},
        ]

    def _simulator(self, fleet: Fleet, instances: int, rate: float) -> Simulator:
        cells = [cell.simulated(fleet) for cell in self._cells if not cell.is_down]
        return Simulator(cells, instance_count=instances, rate=rate)


def _set_up_logins(folder: DataFolder, settings: Settings, address: str, projects: Sequence[str]) -> Mapping[str, str]:
    """Write users and clouds.yaml, if the users are those in the folder; returns newly made passwords."""
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
        # Separate from the others, since this program has to be installed first.
        clouds = [
            "",
            "With python-openstackclient:",
            "",
            f"  {variable} openstack --os-cloud fleetlight server list --long --all-projects",
        ]
    lines = (
        "",
        *_console(address, folder, settings),
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


def _console(address: str, folder: DataFolder, settings: Settings) -> Sequence[str]:
    """Lines about the console. The login link is shown on terminals only, since files and journals would keep it."""
    page = f"{address}/console/"
    has_link = settings.api.auth == "tokens" and settings.identity.file == folder.identity_file and sys.stdout.isatty()
    link = login_link(folder) if has_link else None
    if link is None:
        return (f"The console is at {page}",)
    once = f"once and within {LINK_LIFETIME_S // 60} minutes as {ADMIN} without a password"
    return f"The console, {once}:", "", f"  {page}#login={link}"


def _logins(folder: DataFolder, passwords: Mapping[str, str]) -> Sequence[str]:
    """Lines with newly made passwords, on terminals only, since files and journals of services would keep them."""
    if not passwords:
        return ()
    if not sys.stdout.isatty():
        return "", f"The passwords of {' and '.join(passwords)} are in {folder.clouds_file}."
    users = (f"  user {name}, password {password}" for name, password in passwords.items())
    return "", f"Logins, shown this once and kept in {folder.clouds_file}:", "", *users

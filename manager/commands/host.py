"""`fleetlight host`: shows and changes the hosts of native cells, on which new servers are placed."""

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

import typer
from sqlalchemy import Engine

from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.opening import open_changelog_adapter
from fleetlight.cells.model import Cell
from fleetlight.cli.errors import ConfigurationError
from fleetlight.cli.fleet import LoadedSettings, OpenFleet
from fleetlight.cli.options import Output, OutputOption, cell_names, examples
from fleetlight.cli.output import counted, print_notice, print_result, print_rows
from fleetlight.cli.sizes import disk_gib, size_from_zero_mib, size_option
from fleetlight.manager.agents.wire import PORT
from fleetlight.manager.operations.hosts.agent_addresses import AgentAddresses
from fleetlight.manager.operations.hosts.cell_nodes import CellNodes, NewHost
from fleetlight.manager.operations.hosts.inventories import Inventories, InventoryChange
from fleetlight.manager.operations.nodes.opening import NodeRpcs
from fleetlight.resources.amount import Amount
from fleetlight.resources.instance import DEFAULT_ZONE
from fleetlight.resources.units import MIB_PER_GIB

app = typer.Typer(no_args_is_help=True, epilog=examples("fleetlight host list cell1", "fleetlight host add --help"))

T = TypeVar("T")

_SIZES = ("VCPUS USED", "VCPUS", "MEMORY GIB USED", "MEMORY GIB", "DISK GIB USED", "DISK GIB")
_COLUMNS = ("HOST", "ZONE", "STATE", "STATUS", "INSTANCES", *_SIZES, "AGENT")

_TRAIT = re.compile(r"[A-Z0-9_]{1,255}")


def _ratio(what: str) -> Any:
    """An option for an allocation ratio."""
    return typer.Option(min=0, max=1000, help=f"How many times their {what} instances may take up.", show_default=False)


CellArgument = Annotated[
    str,
    typer.Argument(metavar="CELL", help="The cell, by name or uuid.", show_default=False, autocompletion=cell_names),
]


@app.command(
    epilog=examples(
        "fleetlight host add cell1 compute1 compute2 --vcpus 64 --memory 256G --disk 4000G",
        "fleetlight host add cell1 compute3 --zone east --vcpus 64 --memory 256G --disk 4000G",
    )
)
def add(
    cell: CellArgument,
    hosts: Annotated[list[str], typer.Argument(metavar="HOST...", help="The names of hosts.", show_default=False)],
    *,
    vcpus: Annotated[int, typer.Option(min=1, help="Virtual processors of each host.", show_default=False)],
    memory: Annotated[int, size_option("Memory of each", show_default=False)],
    disk: Annotated[int, size_option("Local disk of each", parser=disk_gib, show_default=False)],
    zone: Annotated[str, typer.Option(help="The availability zone of the hosts.")] = DEFAULT_ZONE,
    fleet: OpenFleet,
) -> None:
    """Add simulated hosts to a cell. Existing ones stay as they are."""
    capacity = Amount.of_gib(vcpus, memory, disk)
    with _hosts_of(fleet, cell) as (found, nodes, _):
        before = len(nodes.services())
        nodes.add_hosts([NewHost(host, capacity, zone) for host in hosts])
        services = nodes.services()
        fleet.known_hosts.remember({found.uuid: [service.host for service in services]})
        added = len(services) - before
    print_result(f"{cell}: {added} of {len(hosts)} hosts added")


@app.command(
    "set",
    epilog=examples(
        "fleetlight host set cell1 compute1 compute2 --vcpu-ratio 4 --reserve-memory 8G",
        "fleetlight host set cell1 compute3 --traits CUSTOM_GPU,HW_CPU_X86_AVX2",
    ),
)
def set_inventory(
    cell: CellArgument,
    hosts: Annotated[list[str], typer.Argument(metavar="HOST...", help="The names of hosts.", show_default=False)],
    *,
    vcpu_ratio: Annotated[float | None, _ratio("processors")] = None,
    memory_ratio: Annotated[float | None, _ratio("memory")] = None,
    disk_ratio: Annotated[float | None, _ratio("disk")] = None,
    reserve_vcpus: Annotated[int | None, typer.Option(min=0, help="Processors to keep back from instances.")] = None,
    reserve_memory: Annotated[
        int | None, size_option("Memory to keep back from instances", parser=size_from_zero_mib)
    ] = None,
    reserve_disk: Annotated[int | None, size_option("Disk to keep back from instances", parser=disk_gib)] = None,
    traits: Annotated[
        str | None, typer.Option(help="All traits of the hosts, comma-separated; empty for none.")
    ] = None,
    fleet: OpenFleet,
) -> None:
    """Set how much of hosts the scheduler may give to instances, and their traits. Other values stay as they are."""
    change = InventoryChange(
        reserved=_given(vcpus=reserve_vcpus, memory_mib=reserve_memory, disk_gib=reserve_disk),
        ratios=_given(vcpus=vcpu_ratio, memory_mib=memory_ratio, disk_gib=disk_ratio),
        traits=None if traits is None else _traits(traits),
    )
    with _hosts_of(fleet, cell) as (found, _, engine):
        Inventories(engine, found).change(hosts, change)
    print_result(f"{cell}: {len(set(hosts))} hosts set")


@app.command(
    "agent",
    epilog=examples(
        "fleetlight host agent cell1 compute1 compute1.example.org:1811",
        "fleetlight host agent cell1 compute1 --remove",
    ),
)
def set_agent(
    cell: CellArgument,
    host: Annotated[str, typer.Argument(metavar="HOST", help="The name of the host.", show_default=False)],
    address: Annotated[
        str | None,
        typer.Argument(
            metavar="[ADDRESS]", help=f"Where its agent answers: HOST or HOST:PORT; port {PORT} by default."
        ),
    ] = None,
    *,
    remove: Annotated[bool, typer.Option("--remove", help="Make the host a simulated one again.")] = False,
    settings: LoadedSettings,
    fleet: OpenFleet,
) -> None:
    """Set the agent that does the work of a host (docs/operations/node-agents.md). Running workers use it at once."""
    if (address is None) != remove:
        raise ConfigurationError("name either where the agent answers, or --remove")
    found = None if address is None else _address(address)
    with _hosts_of(fleet, cell) as (of, nodes, engine), closing(NodeRpcs(settings.nodes)) as rpcs:
        agents = AgentAddresses(engine, of)
        before = agents.of([host])
        agents.set(host, found)
        rpcs.forget(of, [agent.node for agent in before])
        instances = len(nodes.servers_on([host]).get(host, ()))
    print_result(f"{cell}: {host} " + ("has no agent" if found is None else f"has its agent at {found}"))
    if instances and found is not None:
        print_notice(
            f"{counted(instances, 'instance')} of {host} may be unknown to the agent: it has each of them when "
            "that was started, or rebooted, once more"
        )


@app.command("list", epilog=examples("fleetlight host list cell1", "fleetlight host list cell1 --output json"))
def list_hosts(cell: CellArgument, fleet: OpenFleet, output: OutputOption = Output.TABLE) -> None:
    """List the hosts of a cell, and how much of each is used."""
    with _hosts_of(fleet, cell) as (of, nodes, engine):
        agents = {agent.host: agent.address for agent in AgentAddresses(engine, of).all()}
        found: list[dict[str, Any]] = [
            {
                "host": node.service.host,
                "zone": node.service.availability_zone,
                "state": "up" if node.service.is_up else "down",
                "status": "disabled" if node.service.disabled else "enabled",
                "instances": node.instance_count,
                "vcpus": node.capacity.vcpus,
                "vcpus_used": node.used.vcpus,
                "memory_mib": node.capacity.memory_mib,
                "memory_mib_used": node.used.memory_mib,
                "disk_gib": node.capacity.disk_gib,
                "disk_gib_used": node.used.disk_gib,
                "agent": agents.get(node.service.host),
            }
            for node in nodes.nodes()
        ]
    rows = [
        [
            *(str(host[name]) for name in ("host", "zone", "state", "status", "instances", "vcpus_used", "vcpus")),
            f"{host['memory_mib_used'] / MIB_PER_GIB:.0f}",
            f"{host['memory_mib'] / MIB_PER_GIB:.0f}",
            *(str(host[name]) for name in ("disk_gib_used", "disk_gib")),
            host["agent"] or "-",
        ]
        for host in found
    ]
    print_rows(output, found, _COLUMNS, rows, right_aligned=_COLUMNS[4:-1])


def _address(text: str) -> str:
    """Complete an address to HOST:PORT. Raises ConfigurationError."""
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, PORT if parts.port is None else parts.port
    except ValueError:
        host, port = None, 0
    if not host or not port or parts.netloc != text or "@" in text:
        raise ConfigurationError(f"'{text}' is no address such as compute1.example.org:{PORT} or [2001:db8::1]:{PORT}")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _given(**values: T | None) -> dict[str, T]:
    return {name: value for name, value in values.items() if value is not None}


def _traits(text: str) -> list[str]:
    """Parse comma-separated traits. Raises ConfigurationError."""
    traits = [trait for part in text.split(",") if (trait := part.strip())]
    for trait in traits:
        if not _TRAIT.fullmatch(trait):
            raise ConfigurationError(f"--traits: {trait!r} is no trait such as CUSTOM_GPU")
    return traits


@contextmanager
def _hosts_of(fleet: Fleet, name: str) -> Iterator[tuple[Cell, CellNodes, Engine]]:
    """The cell of that name, its hosts and its database.

    Raises UnknownCellError, and ConfigurationError for a cell without hosts of ours.
    """
    cell = fleet.cell(name)
    if not cell.can.takes_changes:
        raise ConfigurationError(f"cell {cell.name} is not a native one: its hosts are not ours")
    with closing(open_changelog_adapter(cell)) as adapter:
        yield cell, CellNodes(adapter.engine, cell), adapter.engine

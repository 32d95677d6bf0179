"""`fleetlight node-agent`: runs on a host, and does the work that workers request.

It imports nothing that talks to databases or buses, so a host needs neither.
"""

import asyncio
import os
import signal
import socket
import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated

import structlog
import typer
import uvloop

from fleetlight.cli.errors import CommandError
from fleetlight.cli.logging import LogSettings, configure_logging
from fleetlight.cli.options import examples
from fleetlight.cli.sizes import size_option
from fleetlight.manager.agents.agent import Agent
from fleetlight.manager.agents.database import AgentDatabase
from fleetlight.manager.agents.drivers.libvirt import LibvirtDriver
from fleetlight.manager.agents.drivers.simulated import HostSize, SimulatedDriver
from fleetlight.manager.agents.errors import AgentError
from fleetlight.manager.agents.journal import Journal
from fleetlight.manager.agents.tls import RenewedContext, TlsFiles
from fleetlight.manager.agents.wire import PORT
from fleetlight.resources.units import MIB_PER_GIB

app = typer.Typer()

_log = structlog.get_logger(__name__)


@app.command(
    "node-agent",
    epilog=examples(
        "fleetlight node-agent compute1 --certificate agent-compute1.pem --key agent-compute1.key "
        "--trusted authority.pem --folder /var/lib/fleetlight-agent",
        "fleetlight node-agent compute2 --certificate agent-compute2.pem --key agent-compute2.key "
        "--trusted authority.pem --folder /var/lib/fleetlight-agent --libvirt qemu:///system",
    ),
)
def node_agent(
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node's name in its cell.", show_default=False)],
    *,
    certificate: Annotated[
        Path,
        typer.Option(metavar="FILE", help="The certificate of the agent (fleetlight cell certs).", show_default=False),
    ],
    key: Annotated[Path, typer.Option(metavar="FILE", help="The key of the certificate.", show_default=False)],
    trusted: Annotated[
        Path, typer.Option(metavar="FILE", help="The authority that signs callers' certificates.", show_default=False)
    ],
    folder: Annotated[Path, typer.Option(metavar="DIR", help="The folder for the agent's state.", show_default=False)],
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "0.0.0.0",  # noqa: S104  # callers need a certificate
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on; 0 for any free one.")] = PORT,
    libvirt: Annotated[
        str | None,
        typer.Option("--libvirt", metavar="URI", help="Serve this host through libvirt, instead of a simulated one."),
    ] = None,
    volume_group: Annotated[
        str, typer.Option(metavar="NAME", help="The volume group for disks of new guests; with libvirt a storage pool.")
    ] = "xenvg",
    hypervisors: Annotated[
        list[str] | None,
        typer.Option(
            "--hypervisor", metavar="NAME", help="A hypervisor of the simulated host; repeatable. Default: fake."
        ),
    ] = None,
    until_stdin_ends: Annotated[
        bool,
        typer.Option(
            "--until-stdin-ends",
            help="End when the standard input is closed, that is with the process that started the agent.",
        ),
    ] = False,
    vcpus: Annotated[int, typer.Option(min=1, help="The processors of the simulated host.")] = 16,
    memory: Annotated[int | None, size_option("The memory of the simulated host; 64G by default")] = None,
    disk: Annotated[int | None, size_option("The disk of the simulated host; 1024G by default")] = None,
) -> None:
    """Run on a host, and carry out the requests of its cell's workers.

    Without --libvirt the host is simulated, and its guests are in the folder. The file behaviour.json there says which
    of its operations are slow or fail; it can be changed at any time.
    """
    configure_logging(LogSettings())
    try:
        tls = RenewedContext(TlsFiles(certificate, key, trusted), is_server=True)
        with closing(AgentDatabase(folder)) as database:
            size = HostSize(vcpus, memory or 64 * MIB_PER_GIB, disk or 1024 * MIB_PER_GIB)
            driver = (
                SimulatedDriver(database, folder, size, hypervisors=hypervisors or ("fake",), volume_group=volume_group)
                if libvirt is None
                else LibvirtDriver(libvirt, volume_group)
            )
            agent = Agent(node, driver, Journal(database))
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(_serve(agent, host, port, tls, until_stdin_ends=until_stdin_ends))
    except AgentError as error:
        raise CommandError(str(error)) from error
    _log.info("stopped")


async def _serve(agent: Agent, host: str, port: int, tls: RenewedContext, *, until_stdin_ends: bool) -> None:
    from fleetlight.manager.agents.server import serve_agent  # noqa: PLC0415 -- has a web server, and this is imported for help, too

    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise CommandError(f"cannot listen on {host}:{port}: {reason}; choose another with --host or --port") from error
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    if until_stdin_ends:
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), _look_at_stdin, stop)
    with listener:
        address, bound, *_ = listener.getsockname()
        await serve_agent(
            agent,
            listener,
            tls,
            stop,
            on_ready=lambda: _log.info("agent.ready", node=agent.name, address=f"{address}:{bound}"),
        )


def _look_at_stdin(stop: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        stop.set()

"""`fleetlight cell certs`: by what the agents of a cell and those that call them know each other."""

from pathlib import Path
from typing import Annotated

import typer

from fleetlight.cli.options import examples

_EXAMPLES = examples(
    "fleetlight cell certs cell1 --agent compute1 --agent compute2 --worker worker1",
    "fleetlight cell certs cell1 --out cell1-certs",
)


def certs(
    cell: Annotated[str, typer.Argument(metavar="NAME", help="The cell.", show_default=False)],
    *,
    agents: Annotated[
        list[str] | None,
        typer.Option("--agent", metavar="NODE", help="A node with an agent that gets a certificate; repeatable."),
    ] = None,
    workers: Annotated[
        list[str] | None,
        typer.Option("--worker", metavar="NAME", help="A process that may call the agents gets one; repeatable."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the files are.")] = Path("fleetlight-certs"),
) -> None:
    """Make the authority of a cell, and certificates for its agents and for those that call them.

    Can be repeated, as from cron: it renews what ends before long, and leaves the rest as it is. Agents and workers
    take new files as soon as they see them, with no pause. The key of the authority, authority.key, stays here.
    """
    from fleetlight.manager.commands.certificate_files import write_certificates  # noqa: PLC0415 -- has cryptography, which takes long

    write_certificates(out, cell, agents or (), workers or ())


def add_to(cell_commands: typer.Typer) -> None:
    """As fleetlight.resources.wings asks for."""
    cell_commands.command("certs", epilog=_EXAMPLES)(certs)

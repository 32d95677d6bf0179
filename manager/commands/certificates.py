"""`fleetlight cell certs`: certificates with which a cell's agents and their callers authenticate each other."""

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
        typer.Option("--agent", metavar="NODE", help="Create a certificate for the agent of this node; repeatable."),
    ] = None,
    workers: Annotated[
        list[str] | None,
        typer.Option("--worker", metavar="NAME", help="Create one for this process that calls agents; repeatable."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder of the files.")] = Path(
        "fleetlight-certs"
    ),
) -> None:
    """Create the authority of a cell, and certificates for its agents and their callers.

    Can be repeated, for example by cron: it renews certificates that expire soon, and leaves the rest as it is. Agents
    and workers load new files as soon as they see them, without a pause. Keep the authority's key, authority.key, here.
    """
    from fleetlight.manager.commands.certificate_files import write_certificates  # noqa: PLC0415 -- has cryptography, which takes long

    write_certificates(out, cell, agents or (), workers or ())


def add_to(cell_commands: typer.Typer) -> None:
    """Add the command, as fleetlight.resources.wings requires."""
    cell_commands.command("certs", epilog=_EXAMPLES)(certs)

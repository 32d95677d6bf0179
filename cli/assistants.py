"""`fleetlight mcp`: the tools of assistants over standard input and output."""

import asyncio
from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING

import typer

from fleetlight.cli.errors import CommandError
from fleetlight.cli.operator_api import OpenApi, OperatorApi
from fleetlight.cli.options import examples
from fleetlight.resources.clock import system_clock

if TYPE_CHECKING:
    from fleetlight.api.http.in_process import InProcessResponse

app = typer.Typer()


@app.command(
    "mcp",
    epilog=examples(
        "fleetlight mcp --data-dir fleetlight-data",
        "claude mcp add fleetlight -- fleetlight mcp --config /etc/fleetlight.toml",
        "claude mcp add --transport http fleetlight https://lists.example.org/mcp --header 'X-Auth-Token: …'",
    ),
)
def mcp(*, api: OpenApi) -> None:
    """Serve the tools of an assistant on standard input and output, by the Model Context Protocol.

    The tools only read: query, count, fields, show, history, changes, explain, capacity, findings and cells. Each
    result says whether it is complete, which cells it covers, its age, and whether there is more. This process answers
    as an administrator, with the accounts of the configuration. The API offers the same tools at /mcp, where each
    caller has only its own rights. Needs the extra: pip install 'fleetlight[mcp]'.
    """
    if find_spec("mcp") is None:
        raise CommandError("the Model Context Protocol is not installed: pip install 'fleetlight[mcp]'")
    asyncio.run(_serve(api))


async def _serve(opened: OperatorApi) -> None:
    from fleetlight.api.assistants.tools import make_server  # noqa: PLC0415 -- it needs the extra

    async with opened.opened() as api:

        async def ask(path: str, query: str, headers: Mapping[str, str]) -> "InProcessResponse":
            return await api.call("GET", path, query=query, headers=headers)

        await make_server(ask, system_clock, version("fleetlight")).run_stdio_async()

"""`fleetlight reserve`: reserves capacity before anything runs, and builds instances on it later."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from html import unescape
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
import typer

from fleetlight.cells.job_words import ENDED
from fleetlight.cli.errors import CommandError, ConfigurationError
from fleetlight.cli.list_forms import ItemWord
from fleetlight.cli.list_items import list_items
from fleetlight.cli.operator_api import OpenApi, OperatorApi
from fleetlight.cli.options import CellOption, Output, OutputOption, examples
from fleetlight.cli.output import print_notice, print_result, print_rows
from fleetlight.cli.sizes import size_option

app = typer.Typer(
    no_args_is_help=True,
    help="Reserve capacity for instances, and build reserved instances.",
    epilog=examples(
        "fleetlight reserve create web1.example.org --memory 4G --vcpus 2 --disk 20G --os debian-12",
        "fleetlight reserve complete web1.example.org",
    ),
)

Call = Callable[..., Awaitable[Any]]
_HEADERS = {"Content-Type": "application/json", "Fleetlight-Consistency": "strong"}
_FIELDS = "name,uuid,cell,pnode,be/memory,be/vcpus,disk.sizes"
_POLL_INTERVAL_S = 0.2
_OPTIONS = {
    "name": "NAME",
    "beparams": "--memory or --vcpus",
    "disks": "--disk",
    "disk_template": "--disk-template",
    "os": "--os",
    "pnode": "--node",
    "snode": "--secondary",
    "expires_at": "--expires-in",
}
"""Maps names in the API's requests to options of the command."""
_UNITS_S = {"m": 60, "h": 3600, "d": 86400}

NameArgument = Annotated[str, typer.Argument(metavar="NAME|UUID", show_default=False)]
WaitOption = Annotated[
    float, typer.Option("--wait", min=0, metavar="SECONDS", help="How long to wait for the end of the job.")
]


def _seconds(text: str) -> int:
    """Parse `90m`, `12h` or `7d` to seconds."""
    number, unit = text[:-1], text[-1:]
    if not number.isdigit() or unit not in _UNITS_S:
        raise typer.BadParameter(f"'{text}' is no time such as 90m, 12h or 7d")
    return int(number) * _UNITS_S[unit]


@app.command(
    epilog=examples(
        "fleetlight reserve create",
        "fleetlight reserve create web1.example.org --memory 4G --vcpus 2 --disk 20G --os debian-12",
        "fleetlight reserve create --cell cell1 --memory 8G --disk-template drbd --disk 50G --expires-in 7d",
    )
)
def create(
    name: Annotated[str | None, typer.Argument(show_default=False, help="The name; can be given later.")] = None,
    *,
    memory: Annotated[int | None, size_option("The memory of the instance")] = None,
    vcpus: Annotated[int | None, typer.Option(min=1, help="The processors of the instance.")] = None,
    disk: Annotated[list[int] | None, size_option("The size of a disk; repeat it for each disk")] = None,
    disk_template: Annotated[
        str | None, typer.Option(metavar="TEMPLATE", help="The template of the disks: plain, drbd …")
    ] = None,
    system: Annotated[str | None, typer.Option("--os", metavar="OS", help="An OS from `fleetlight list os`.")] = None,
    node: Annotated[str | None, typer.Option(metavar="NODE", help="The primary node.")] = None,
    secondary: Annotated[str | None, typer.Option(metavar="NODE", help="The secondary node.")] = None,
    expires_in: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="When the reservation ends, like 90m, 12h or 7d; by default never."),
    ] = None,
    cell: CellOption = None,
    wait: WaitOption = 60.0,
    api: OpenApi,
) -> None:
    """Reserve capacity, and print the uuid of the reservation.

    Nothing need be known about the instance yet. The given sizes count as used from now on, so that the instance can
    always be built. Without --cell the reservation goes to the cell with the most room.
    """
    body: dict[str, Any] = {
        "__version__": 1,
        "forthcoming": True,
        "name": name,
        "beparams": {key: value for key, value in (("memory", memory), ("vcpus", vcpus)) if value is not None},
        "disks": [{"size": size} for size in disk or ()],
        "disk_template": disk_template,
        "os": system,
        "pnode": node,
        "snode": secondary,
        "expires_at": None if expires_in is None else round(time.time()) + _seconds(expires_in),
    }
    [uuid] = _run(api, wait, "POST", f"{_base(api, cell)}/instances", body)
    print_result(uuid)


@app.command("list", epilog=examples("fleetlight reserve list", "fleetlight reserve list --cell cell1 --output json"))
def list_reservations(*, cell: CellOption = None, output: OutputOption = Output.TABLE, api: OpenApi) -> None:
    """List the reservations of all cells."""
    list_items(
        ItemWord.INSTANCES,
        ["forthcoming"],
        fields=_FIELDS,
        is_filter=True,
        cell=cell,
        output=output,
        api=api,
    )


@app.command(epilog=examples("fleetlight reserve show web1.example.org"))
def show(name: NameArgument, *, cell: CellOption = None, output: OutputOption = Output.TABLE, api: OpenApi) -> None:
    """Show all data of a reservation."""
    found = _get(api, _instance(api, cell, name))
    if not found["forthcoming"]:
        raise ConfigurationError(f"'{name}' is an instance, and no reservation")
    rows = [(field, _shown(value)) for field, value in found.items()]
    print_rows(output, found, ("FIELD", "VALUE"), rows)


@app.command(
    epilog=examples(
        "fleetlight reserve complete web1.example.org",
        "fleetlight reserve complete 0c4e4f8d-f6c8-48fc-8cb3-b9a686909d07 --name web1.example.org --os debian-12",
    )
)
def complete(
    name: NameArgument,
    *,
    new_name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Give the instance this name first.")
    ] = None,
    system: Annotated[str | None, typer.Option("--os", metavar="OS", help="The OS to install.")] = None,
    no_start: Annotated[bool, typer.Option("--no-start", help="Do not start the instance.")] = False,
    cell: CellOption = None,
    wait: WaitOption = 60.0,
    api: OpenApi,
) -> None:
    """Build the instance of a reservation on its reserved nodes, and print these."""
    path = _instance(api, cell, name)
    if new_name is not None:
        _run(api, wait, "PUT", f"{path}/rename", {"new_name": new_name})
        path = _instance(api, cell, new_name)
    body = {"start": not no_start} | ({} if system is None else {"os": system})
    [nodes] = _run(api, wait, "POST", f"{path}/create", body)
    print_result(" ".join(nodes))


@app.command(epilog=examples("fleetlight reserve cancel web1.example.org"))
def cancel(name: NameArgument, *, cell: CellOption = None, wait: WaitOption = 60.0, api: OpenApi) -> None:
    """Delete a reservation, and free its capacity. Real instances are refused."""
    path = _instance(api, cell, name)
    if not _get(api, path)["forthcoming"]:
        raise ConfigurationError(f"'{name}' is an instance, and no reservation: it is not removed by this")
    _run(api, wait, "DELETE", path, {})
    print_result(f"{name}: given up")


def _shown(value: Any) -> str:
    """Format a value of a reservation for a table."""
    if value is None:
        return "-"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _base(api: OperatorApi, cell: str | None) -> str:
    """The path of a cell's API, or of the API of all cells. Raises UnknownCellError."""
    if cell is None:
        return "/2"
    return f"/cells/{quote(api.fleet.cell(cell).name, safe='')}/2"


def _instance(api: OperatorApi, cell: str | None, name: str) -> str:
    return f"{_base(api, cell)}/instances/{quote(name, safe='')}"


def _run(api: OperatorApi, wait_s: float, method: str, path: str, body: Mapping[str, Any]) -> Sequence[Any]:
    """Submit a request; returns the results of its job. Raises CommandError if that fails, or does not end in time."""
    given = {name: value for name, value in body.items() if value is not None}

    async def run() -> Mapping[str, Any]:
        async with _application(api) as ask:
            number = await ask(method, path, given)
            deadline = time.monotonic() + wait_s
            while True:
                job: Mapping[str, Any] = await ask("GET", f"/2/jobs/{number}")
                if job["status"] in ENDED or time.monotonic() >= deadline:
                    return job
                await asyncio.sleep(_POLL_INTERVAL_S)

    job = asyncio.run(run())
    if job["status"] not in ENDED:
        print_notice(f"Job {job['id']} goes on; `fleetlight list jobs {job['id']}` tells how it ends")
        raise CommandError(f"job {job['id']} has not ended after {wait_s:g} seconds: is a worker running?")
    if job["status"] != "success":
        raise CommandError(f"job {job['id']}: {job['opresult'][-1][1][0]}")
    results: Sequence[Any] = job["opresult"]
    return results


def _get(api: OperatorApi, path: str) -> Any:
    async def ask() -> Any:
        async with _application(api) as call:
            return await call("GET", path)

    return asyncio.run(ask())


@asynccontextmanager
async def _application(api: OperatorApi) -> AsyncIterator[Call]:
    """Yield a function that sends requests to the application in this process: method, path, and body, if any.

    It raises ConfigurationError for refused requests, and CommandError or CellError for failed ones.
    """
    from fleetlight.cli.in_process import in_options, raise_if_database_failed  # noqa: PLC0415 -- other commands would start a quarter later

    async with api.opened() as app:

        async def ask(method: str, path: str, body: Any = None) -> Any:
            content = b"" if body is None else msgspec.json.encode(body)
            answer = await app.call(method, path, headers=_HEADERS, body=content)
            raise_if_database_failed(answer)
            document = msgspec.json.decode(answer.body)
            if answer.status == HTTPStatus.OK:
                return document
            is_ours = answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR
            raise (CommandError if is_ours else ConfigurationError)(in_options(unescape(document["message"]), _OPTIONS))

        yield ask

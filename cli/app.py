"""The `fleetlight` command: its table of commands. Each command imports its module when it is called."""

import inspect
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperCommand
from typer.main import get_group

from fleetlight.cli.groups import PlainCommand, PlainGroup, with_what_it_declares
from fleetlight.cli.options import examples
from fleetlight.resources.wings import wings

COMMANDS: Mapping[str, tuple[str, str]] = {
    **{name: command for wing in wings() for name, command in wing.commands.items()},
    "api": ("fleetlight.cli.processes.api", "Serve the API, without an indexer, relays or workers."),
    "luxi": ("fleetlight.cli.processes.luxi", "Answer Ganeti's local queries at a unix socket, without the API."),
    "indexer": ("fleetlight.cli.processes.processes", "Follow all cells and keep the index up to date."),
    "relay": (
        "fleetlight.cli.processes.processes",
        "Publish the changes of all native cells on their buses; cells added later are included.",
    ),
    "deliverer": ("fleetlight.cli.processes.processes", "Deliver the events of subscriptions to their targets."),
    "subscribe": (
        "fleetlight.cli.subscribe",
        "Subscriptions: saved queries whose changes are delivered to a webhook or a broker.",
    ),
    "compare": (
        "fleetlight.cli.compare.command",
        "Send the same requests to Nova and Fleetlight, and report differences with requests that reproduce them.",
    ),
    "explain": (
        "fleetlight.cli.explain",
        "Show which sources answer a list or a query, why, by which requests, and how long they take.",
    ),
    "mcp": (
        "fleetlight.cli.assistants",
        "Serve the tools of an assistant on standard input and output, by the Model Context Protocol.",
    ),
    "list": (
        "fleetlight.cli.list_items",
        "List instances, nodes, jobs and the like of all cells, with fields that you choose.",
    ),
    "export": (
        "fleetlight.cli.export",
        "Write all instances, nodes, jobs and the like to a file, with a manifest of what it covers.",
    ),
    "history": (
        "fleetlight.cli.history",
        "Show the changes of an instance: the time of each, its user, and what it changed.",
    ),
    "changes": (
        "fleetlight.cli.history",
        "Show the newest changes of the instances of all cells: when, who, and what.",
    ),
    "list-fields": (
        "fleetlight.cli.list_fields",
        "Show the fields of instances, nodes, jobs and the like that `fleetlight list` can show and filter by.",
    ),
    "index": (
        "fleetlight.cli.index.index",
        "The search index: show its progress, fill it, and compare it with the cells.",
    ),
    "status": (
        "fleetlight.cli.status",
        "Show on one screen whether everything is all right, and if not, what is wrong and what to do.",
    ),
    "top": (
        "fleetlight.cli.top",
        "Show cells, jobs and changes as they come, in the terminal, until q or Ctrl-C.",
    ),
    "doctor": (
        "fleetlight.cli.doctor.doctor",
        "Check everything that a fleet needs, and say for each fault what to do about it.",
    ),
    "findings": (
        "fleetlight.cli.findings",
        "Show what is not as it should be, with evidence and age, and what to do about it.",
    ),
    "usage": (
        "fleetlight.cli.usage",
        "Show for how many hours instances ran or were reserved in a period; deleted instances are included.",
    ),
    "notifications": ("fleetlight.cli.notifications", "Notifications as files and on the bus of a cell."),
    "cell": ("fleetlight.cli.cells.cell", "The cells of the fleet."),
    "identity": ("fleetlight.cli.identity", "Users, projects and roles, with api.auth tokens."),
    "database": ("fleetlight.cli.cells.database", "The databases of the fleet and of its cells."),
    "accounts": (
        "fleetlight.cli.accounts",
        "Separate accounts for each process on Elasticsearch, RabbitMQ and PostgreSQL, with minimal rights.",
    ),
}
"""Maps each command or group to the module that has it as `app`, and to its purpose.

Help and completion read this table and import no module. The purpose of a group is written only here; a command repeats
its purpose at the beginning of its docstring.
"""


class FleetlightGroup(PlainGroup):
    """Turns an error of any command into one sentence instead of a traceback, and a dependable exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.Exit:
            raise
        except (Exception, KeyboardInterrupt) as error:
            # Imported only here: end_in_words knows the errors of all packages, which most commands have not imported.
            from fleetlight.cli.endings import end_in_words  # noqa: PLC0415

            end_in_words(error)
            raise


class LaterCommand(TyperCommand):
    """A command or group whose module is imported when it is called, not when it is listed."""

    def __init__(self, name: str, module: str, purpose: str) -> None:
        super().__init__(name, help=purpose)
        self._module = module

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        return self.loaded().make_context(info_name, args, parent, **extra)

    def loaded(self) -> Any:
        """Import the module, and return the command or group in it."""
        app: typer.Typer = import_module(self._module).app
        _polish_help(app)
        group = get_group(app)
        # A module with several commands has one of this name; otherwise `self` stands for the whole group.
        command = group.commands.get(self.name or "", group)
        command.name = self.name
        command.help = command.help or self.help
        return command


class _Fleetlight(FleetlightGroup):
    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, (module, purpose) in COMMANDS.items():
            self.add_command(LaterCommand(name, module, purpose))


def _polish_help(group: typer.Typer) -> None:
    """Join the lines of help texts, since the terminal wraps them, and drop the types that flags would show."""
    if not isinstance(group.info.cls, type):
        group.info.cls = PlainGroup
    for command in group.registered_commands:
        if command.callback is None:
            continue
        command.cls, command.callback = PlainCommand, with_what_it_declares(command.callback)
        paragraphs = inspect.cleandoc(command.callback.__doc__ or "").split("\n\n")
        command.help = "\n\n".join(" ".join(paragraph.splitlines()) for paragraph in paragraphs)
    for subgroup in group.registered_groups:
        if subgroup.typer_instance is not None:
            _polish_help(subgroup.typer_instance)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"fleetlight {version('fleetlight')}")
        raise typer.Exit


app = typer.Typer(
    name="fleetlight",
    cls=_Fleetlight,
    help="One list of everything that runs, over many cells.",
    epilog=examples("fleetlight up --simulate", "fleetlight status"),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _options_of_all(
    *,
    show_version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    # Imported only here: help and completion log nothing, and logging takes as long to import as all the rest.
    from fleetlight.cli.logging import log_beside_results  # noqa: PLC0415

    log_beside_results()

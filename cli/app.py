"""The `fleetlight` command: its groups, and how every command ends when something is wrong."""

import inspect
from importlib.metadata import version
from typing import Annotated, Any

import typer
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from typer.core import TyperGroup

from api.errors import (
    DirectoryError,
    DirectoryUnavailableError,
    IdentityConfigurationError,
    InsecureListeningError,
    UnknownInDirectoryError,
)
from cells.errors import CellError, UnknownCellError
from cli import accounts, explain, identity, notifications
from cli.cells import cell, database, host
from cli.errors import INTERRUPTED, CommandError, ConfigurationError
from cli.index import index
from cli.logging import quieten_libraries
from cli.options import examples
from cli.output import print_error, print_notice, print_result
from cli.processes import processes, up
from indexer.errors import IndexerError
from notifications.errors import NotificationError
from query.errors import QueryError

_WRONG_USAGE = (InsecureListeningError, IdentityConfigurationError, UnknownCellError, UnknownInDirectoryError)
_FAILURES = (
    CellError,
    DirectoryError,
    DirectoryUnavailableError,
    IndexerError,
    NotificationError,
    QueryError,
    SQLAlchemyError,
    OSError,
)


class FleetlightGroup(TyperGroup):
    """Ends every command with one sentence instead of a traceback, and an exit code that scripts can trust."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except CommandError as error:
            print_error(str(error))
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt:
            print_notice("stopped")
            raise typer.Exit(INTERRUPTED) from None
        except _WRONG_USAGE as error:
            print_error(str(error))
            raise typer.Exit(ConfigurationError.exit_code) from error
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")  # a word of the library that checks values
            raise
        except BrokenPipeError:
            raise  # whoever reads the output has seen enough, as `head` does; typer ends quietly
        except _FAILURES as error:
            print_error(_in_words(error))
            raise typer.Exit(1) from error


def _in_words(error: Exception) -> str:
    """`error` without the numbers, statements and links that its own text has."""
    match error:
        case DBAPIError(orig=BaseException() as reason):
            return f"a database failed: {str(reason).strip() or type(reason).__name__}"
        case DirectoryUnavailableError(path=path, reason=reason):
            return f"cannot read or write the users in {path}: {reason}"
        case OSError(filename=str() as name, strerror=str() as reason):
            return f"{name}: {reason}"
        case _:
            return str(error)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        print_result(f"fleetlight {version('fleetlight')}")
        raise typer.Exit


def _let_paragraphs_flow(group: typer.Typer) -> None:
    """Take the line breaks of our source out of the help: it is broken where the terminal ends."""
    for command in group.registered_commands:
        paragraphs = inspect.cleandoc(command.callback.__doc__ or "").split("\n\n") if command.callback else []
        command.help = "\n\n".join(" ".join(paragraph.splitlines()) for paragraph in paragraphs)
    for subgroup in group.registered_groups:
        if subgroup.typer_instance is not None:
            _let_paragraphs_flow(subgroup.typer_instance)


app = typer.Typer(
    name="fleetlight",
    cls=FleetlightGroup,
    help="One list of everything that runs, over many cells.",
    epilog=examples("fleetlight up --simulate", "fleetlight index status"),
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
    quieten_libraries()


up.register(app)
processes.register(app)
explain.register(app)
app.add_typer(index.app, name="index")
app.add_typer(notifications.app, name="notifications")
app.add_typer(cell.app, name="cell")
app.add_typer(host.app, name="host")
app.add_typer(identity.app, name="identity")
app.add_typer(database.app, name="database")
app.add_typer(accounts.app, name="accounts")
_let_paragraphs_flow(app)

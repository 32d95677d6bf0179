"""The `fleetlight` command: its groups, and how every command ends when something is wrong."""

from typing import Any

import typer
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from typer.core import TyperGroup

from api.errors import DirectoryError, DirectoryUnavailableError, IdentityConfigurationError, InsecureListeningError
from cells.errors import CellError, UnknownCellError
from cli import accounts, explain, identity, notifications
from cli.cells import cell, database, host
from cli.errors import INTERRUPTED, CommandError, ConfigurationError
from cli.index import index
from cli.options import examples
from cli.output import print_error, print_notice
from cli.processes import processes, up
from indexer.errors import IndexerError
from notifications.errors import NotificationError
from query.errors import QueryError

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
        except (InsecureListeningError, IdentityConfigurationError, UnknownCellError) as error:
            print_error(str(error))
            raise typer.Exit(ConfigurationError.exit_code) from error
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


app = typer.Typer(
    name="fleetlight",
    cls=FleetlightGroup,
    help="One list of everything that runs, over many cells.",
    epilog=examples("fleetlight up --simulate", "fleetlight index status"),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
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

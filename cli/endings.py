"""Ends a failed command with one sentence instead of a traceback, and an exit code for scripts."""

import signal

import typer
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from fleetlight.api.http.errors import (
    DirectoryError,
    DirectoryUnavailableError,
    IdentityConfigurationError,
    InsecureListeningError,
    UnknownInDirectoryError,
)
from fleetlight.cells.errors import CellError, DatabaseUrlError, UnknownCellError
from fleetlight.cli.errors import INTERRUPTED, CommandError, ConfigurationError
from fleetlight.cli.output import print_error, print_notice
from fleetlight.indexer.errors import IndexerError
from fleetlight.notifications.errors import NotificationError
from fleetlight.query.errors import QueryError
from fleetlight.resources.errors import FieldError, UsageError

_WRONG_USAGE = (
    DatabaseUrlError,
    InsecureListeningError,
    IdentityConfigurationError,
    UnknownCellError,
    UnknownInDirectoryError,
    UsageError,
)
_FAILURES = (
    CellError,
    DirectoryError,
    DirectoryUnavailableError,
    IndexerError,
    NotificationError,
    FieldError,
    QueryError,
    SQLAlchemyError,
    OSError,
)


def end_in_words(error: BaseException) -> None:
    """Print the error. Raises typer.Exit, or returns if typer or a traceback has to report the error."""
    match error:
        case KeyboardInterrupt():
            print_notice("stopped")
            raise typer.Exit(INTERRUPTED) from None
        case typer.BadParameter():
            error.message = error.message.removeprefix("Value error, ")  # added by the library that checks values
        case BrokenPipeError():
            pass  # the reader of the output, such as `head`, has seen enough; typer ends quietly
        case _:
            failure = as_command_error(error)
            if failure is not None:
                print_error(str(failure))
                raise typer.Exit(failure.exit_code) from error


def as_command_error(error: BaseException) -> CommandError | None:
    """Convert to an error with a text for people and an exit code; None if `error` is a mistake of this program."""
    match error:
        case CommandError():
            return error
        case _ if isinstance(error, _WRONG_USAGE):
            return ConfigurationError(str(error))
        case _ if isinstance(error, _FAILURES):
            return CommandError(_in_words(error))
        case _:
            return None


def how_it_ended(exit_code: int | None) -> str:
    """The signal that ended a child process, or its exit code."""
    return signal.Signals(-exit_code).name if exit_code is not None and exit_code < 0 else f"exit code {exit_code}"


def _in_words(error: Exception) -> str:
    """The text of `error` without the numbers, statements and links that libraries add."""
    match error:
        case DBAPIError(orig=BaseException() as reason):
            return f"a database failed: {str(reason).strip() or type(reason).__name__}"
        case DirectoryUnavailableError(path=path, reason=reason):
            return f"cannot read or write the users in {path}: {reason}"
        case OSError(filename=str() as name, strerror=str() as reason):
            return f"{name}: {reason}"
        case _:
            return str(error)

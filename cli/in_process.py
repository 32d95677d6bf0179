"""What the application of this process answers to a command."""

from typing import TYPE_CHECKING, Any

import msgspec

from fleetlight.cells.errors import CellError
from fleetlight.cli.errors import CommandError, ConfigurationError

if TYPE_CHECKING:
    from fleetlight.api.http.in_process import Answer

_OK = 200
_SERVER_ERRORS = 500


def document_of(answer: "Answer") -> Any:
    """The JSON of a success. Raises ConfigurationError for what was refused, and CommandError for what failed.

    Raises CellError when it failed over a database, which callers over a network do not see.
    """
    raise_if_database_failed(answer)
    document = msgspec.json.decode(answer.body)
    if answer.status != _OK:
        [fault] = document.values()
        raise (ConfigurationError if answer.status < _SERVER_ERRORS else CommandError)(fault["message"])
    return document


def raise_if_database_failed(answer: "Answer") -> None:
    """Raises the CellError that the answer was made of, which names the database and what is wrong with it."""
    if answer.status >= _SERVER_ERRORS and isinstance(answer.failure, CellError):
        raise answer.failure

"""How every process logs: one line per event, readable on a terminal and as JSON anywhere else.

Libraries that log through the standard library use the same format. Passwords never reach a log: those in URLs are
masked wherever they appear, and values with the name of a secret are omitted. Tracebacks, also on a terminal, show
lines of our source but no variables, because these may hold data of a request.
"""

import logging
import re
import sys
from collections.abc import Mapping
from typing import Any, Literal

import structlog
from pydantic import BaseModel, ConfigDict
from structlog.typing import EventDict, Processor, WrappedLogger

from fleetlight.resources.secret_names import HIDDEN, is_secret_name, mask_secret_parameters

# A port is no password. An unquoted password may contain a slash or another @.
_URL_PASSWORD = re.compile(r"(?<=://)([^/@\s:]*):(?!\d+(?:[/,?#]|$))[^@\s]+@(?:[^@/\s]*@)*")
# Limits the search to parts that can hold a password, so that a long text is not searched from each of its URLs on.
_UP_TO_LAST_AT = re.compile(r"(?<!\S)\S*@")
_FIRST = ("timestamp", "level", "event")
# Libraries that log every request or step; our own events have what matters.
_CHATTY = {
    "alembic": logging.WARNING,
    "amqp": logging.WARNING,
    "elastic_transport": logging.ERROR,  # warns of each failed attempt
    "kombu": logging.WARNING,
    "kombu.connection": logging.ERROR,  # warns that `memory://` names no host
    "opentelemetry.exporter": logging.ERROR,  # warns of each failed attempt
    "psycopg": logging.ERROR,  # warns of an error in a pipeline that it raises too
    "sqlalchemy": logging.WARNING,
    "uvicorn": logging.WARNING,
}


class LogSettings(BaseModel):
    """Section `log`: what is logged.

    level: the least important level that is logged.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    level: Literal["debug", "info", "warning", "error"] = "info"


def configure_logging(settings: LogSettings) -> None:
    """Send structlog's events and the standard library's records to standard error."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    renderers: list[Processor] = (
        # structlog's default format of errors shows the local variables of each function.
        [structlog.dev.ConsoleRenderer(colors=True, exception_formatter=structlog.dev.plain_traceback)]
        if sys.stderr.isatty()
        else [_order, structlog.processors.JSONRenderer(default=str)]
    )
    # Tracebacks become text before secrets are masked, since the text of an error may contain some.
    last: list[Processor] = [structlog.processors.format_exc_info, mask_secrets, *renderers]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
    quieten_libraries()


def log_beside_results() -> None:
    """Send log events of an interactive command to standard error; structlog's default is standard output."""
    structlog.configure(logger_factory=lambda *_names: structlog.PrintLogger(sys.stderr))
    quieten_libraries()


def quieten_libraries() -> None:
    """Drop messages of libraries that help no operator; Python prints them even if a command logs nothing."""
    for name, level in _CHATTY.items():
        logging.getLogger(name).setLevel(level)


def mask_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Omit the values of secrets, and mask passwords inside URLs, at any depth of a value."""
    return _masked_values(event)


def _masked_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: HIDDEN if is_secret_name(str(name)) else _masked(value) for name, value in values.items()}


def _masked(value: Any) -> Any:
    """Convert `value` to text, numbers, lists and mappings, without secrets."""
    match value:
        case None | bool() | int() | float():
            return value
        case Mapping():
            return _masked_values(value)
        case list() | tuple() | set() | frozenset():
            return [_masked(item) for item in value]
        case _:
            return mask_url_passwords(str(value))


def _order(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    return {name: event[name] for name in dict.fromkeys((*_FIRST, *event)) if name in event}


def mask_url_passwords(text: str) -> str:
    """Replace the password of every URL in `text`, and the secrets in its query, by stars."""
    without_accounts = _UP_TO_LAST_AT.sub(lambda part: _URL_PASSWORD.sub(r"\1:***@", part.group()), text)
    return mask_secret_parameters(without_accounts)

"""How every process logs: one line per event, for people on a terminal and as JSON anywhere else.

What libraries log through the standard library goes the same way. Passwords never reach a log: those of URLs are
masked wherever they appear, values under the name of a secret are left out, and a traceback has lines of our source
but no variables, on a terminal as well: what a request brought is among them.
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

# A port is no password. A password that was never quoted may have a slash or another @ in it.
_URL_PASSWORD = re.compile(r"(?<=://)([^/@\s:]*):(?!\d+(?:[/,?#]|$))[^@\s]+@(?:[^@/\s]*@)*")
# Where passwords of URLs can be: a long text without any is searched once, and not from each of its URLs to its end.
_UP_TO_LAST_AT = re.compile(r"(?<!\S)\S*@")
_FIRST = ("timestamp", "level", "event")
# Libraries that tell about every request they make or step they take; what matters of it is in our own events.
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

    level: the least important events that are.
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
        # Its own way to show an error has the local variables of each function.
        [structlog.dev.ConsoleRenderer(colors=True, exception_formatter=structlog.dev.plain_traceback)]
        if sys.stderr.isatty()
        else [_order, structlog.processors.JSONRenderer(default=str)]
    )
    # Tracebacks become text before secrets are masked, since the text of an error may have them.
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
    """Send what a command of a person logs to standard error; structlog prints to standard output by default."""
    structlog.configure(logger_factory=lambda *_names: structlog.PrintLogger(sys.stderr))
    quieten_libraries()


def quieten_libraries() -> None:
    """Drop messages of libraries that help no operator; Python prints them even for commands that log nothing."""
    for name, level in _CHATTY.items():
        logging.getLogger(name).setLevel(level)


def mask_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Leave out the values of secrets, and the passwords inside URLs, however deep in a value they are."""
    return _masked_values(event)


def _masked_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: HIDDEN if is_secret_name(str(name)) else _masked(value) for name, value in values.items()}


def _masked(value: Any) -> Any:
    """`value` as text, numbers, lists and mappings, without secrets."""
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
    """`text` with the password of every URL in it, and the secrets of its query, replaced by stars."""
    without_accounts = _UP_TO_LAST_AT.sub(lambda part: _URL_PASSWORD.sub(r"\1:***@", part.group()), text)
    return mask_secret_parameters(without_accounts)

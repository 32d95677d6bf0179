"""Log events of refused logins: the given name, and by the request the address."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from fleetlight.api.http.connection import shown
from fleetlight.api.http.errors import TooManyLoginsError

_log = structlog.get_logger(__name__)


@asynccontextmanager
async def telling_of_refusal(name: str | None) -> AsyncIterator[None]:
    """Bind `name` to the log events of a login in the block, and log a login that comes too often."""
    with structlog.contextvars.bound_contextvars(login=None if name is None else shown(name)):
        try:
            yield
        except TooManyLoginsError as error:
            _log.warning("login_refused", reason=str(error))
            raise

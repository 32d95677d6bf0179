"""`/2/jobs/J/wait`: what has changed of a job since its caller looked last."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.responses import Response

from api.http.errors import NotFoundError
from api.query.visible_fields import visible_fields
from api.rapi.endpoint import RapiRequest
from api.rapi.faults import RapiError
from api.rapi.items import RapiItems, answer

LONGEST_S = 10.0
_LOOKS_EACH_S = 0.5
_ENDED = frozenset({"canceled", "success", "error"})


class _WaitBody(BaseModel):
    """previous_job_info: the values of the fields when the caller looked last. previous_log_serial: of the log."""

    model_config = ConfigDict(strict=True, frozen=True)

    fields: list[str]
    previous_job_info: list[Any] | None = None
    previous_log_serial: int | None = None


async def wait_for_job(items: RapiItems, request: RapiRequest) -> Response:
    """Answers with null when nothing has changed for `LONGEST_S`; of a job that has ended at once."""
    body = _parsed(request.body)
    names = ["status", "oplog", *body.fields]
    known = visible_fields("job", request.caller)
    unknown = [name for name in body.fields if name not in known]
    if unknown:
        raise RapiError(HTTPStatus.BAD_REQUEST, f"Unknown output fields selected: {', '.join(unknown)}")
    deadline = time.monotonic() + LONGEST_S
    while True:
        rows, headers = await items.collected(request, "job", names, ["==", "id", int(request.names["job"])])
        if not rows:
            raise NotFoundError(f"There is no job {request.names['job']}")
        status, logs, *info = [value for _, value in rows[0][1]]
        entries = _newer(logs, body.previous_log_serial or 0)
        if entries or info != body.previous_job_info or status in _ENDED:
            return answer({"job_info": info, "log_entries": entries}, headers)
        if time.monotonic() + _LOOKS_EACH_S > deadline:
            return answer(None, headers)
        await asyncio.sleep(_LOOKS_EACH_S)


def _parsed(body: Any) -> _WaitBody:
    try:
        return _WaitBody.model_validate(body)
    except ValidationError as error:
        wrong: Mapping[str, Any] = dict(error.errors(include_url=False, include_context=False, include_input=False)[0])
        place = ".".join(map(str, wrong["loc"])) or "the body"
        raise RapiError(HTTPStatus.BAD_REQUEST, f"Invalid body parameters: {place}: {wrong['msg']}") from None


def _newer(logs: Sequence[Sequence[Any]], serial: int) -> list[Any]:
    """The entries of all operations after a serial, in their order."""
    return sorted(entry for entries in logs for entry in entries if entry[0] > serial)

"""From a request to the operation that it asks for (contracts/ganeti-rapi, 2 and 6)."""

import time
from collections.abc import Collection, Mapping
from http import HTTPStatus
from typing import Any, TypeVar

from pydantic import ValidationError

from fleetlight.api.limits.large_bodies import made_aside
from fleetlight.api.rapi.endpoint import RapiRequest
from fleetlight.api.rapi.faults import RapiError
from fleetlight.manager.operations.opcodes.opcode import OpCode

Op = TypeVar("Op", bound=OpCode)
_MOST_NAMED = 3


async def opcode_of(
    request: RapiRequest,
    opcode: type[Op],
    resource: str,
    static: Mapping[str, Any],
    *,
    renamed: Mapping[str, str] | None = None,
    takes_body: bool = True,
    needs_body: bool = False,
    without: Collection[str] = (),
) -> Op:
    """The operation with the parameters of the body, and those that the address gives, which no body may.

    resource: what the trail of reasons calls it. renamed: new names of parameters by their old ones.
    takes_body: whether there may be parameters in the body; otherwise nothing in it counts. needs_body: whether a
    request without a body is refused. without: what else the body may have. Raises RapiError.
    """
    given = _parameters(request, needs_body=needs_body) if takes_body else {}
    given = of_today({name: value for name, value in given.items() if name not in without}, renamed or {})
    overwritten = sorted(given.keys() & static.keys())
    if overwritten:
        raise RapiError(HTTPStatus.BAD_REQUEST, f"Can't overwrite static parameters {', '.join(overwritten)}")
    if "reason" in given:
        raise RapiError(HTTPStatus.BAD_REQUEST, "Invalid body parameters: 'reason' is a parameter of the address")
    # null is as good as nothing: clients send it for whatever they leave out.
    parameters = {name: value for name, value in {**given, **static}.items() if value is not None}
    parameters["reason"] = _reason(request, resource)
    try:
        return await made_aside(request.parts, lambda: _read(opcode, parameters))
    except ValidationError as error:
        raise RapiError(HTTPStatus.BAD_REQUEST, f"Invalid body parameters: {in_words(error)}") from None


def _read(opcode: type[Op], parameters: Mapping[str, Any]) -> Op:
    """Raises RapiError, ValidationError."""
    check_texts(parameters)
    return opcode.read(parameters)


def check_texts(value: Any) -> None:
    """Raises RapiError for a character that PostgreSQL keeps in no text, wherever it is in a body or an address."""
    match value:
        case str() if "\0" in value:
            raise RapiError(HTTPStatus.BAD_REQUEST, f"Invalid body parameters: {value[:100]!r} has a zero character")
        case Mapping():
            for name, inside in value.items():
                check_texts(name)
                check_texts(inside)
        case list() | tuple():
            for inside in value:
                check_texts(inside)


def _parameters(request: RapiRequest, *, needs_body: bool) -> Mapping[str, Any]:
    if not request.has_body and not needs_body:
        return {}
    if not isinstance(request.body, dict):
        raise RapiError(HTTPStatus.BAD_REQUEST, "Invalid body parameters: the body must be an object of parameters")
    return request.body


def of_today(given: Mapping[str, Any], renamed: Mapping[str, str]) -> Mapping[str, Any]:
    """Parameters by their names of today. renamed: those by the old ones. Raises RapiError for both of one."""
    twice = sorted(old for old, new in renamed.items() if old in given and new in given)
    if twice:
        text = f"Parameter '{twice[0]}' was renamed to '{renamed[twice[0]]}': only one of them may be given"
        raise RapiError(HTTPStatus.BAD_REQUEST, text)
    return {renamed.get(name, name): value for name, value in given.items()}


def _reason(request: RapiRequest, resource: str) -> list[tuple[str, str, int]]:
    now = time.time_ns()
    text = request.query.last("reason")
    by_user = [] if text is None else [("gnt:user", text, now)]
    return [*by_user, (f"gnt:library:rlib2:{resource}", "", now)]


def in_words(error: ValidationError) -> str:
    """What is wrong with a body, parameter by parameter."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    words = [f"{'.'.join(map(str, each['loc'])) or 'the body'}: {each['msg']}" for each in found[:_MOST_NAMED]]
    more = len(found) - len(words)
    return "; ".join([*words, *([f"and {more} more"] if more else [])])

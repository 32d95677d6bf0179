"""From a request to its operation (contracts/ganeti-rapi, 2 and 6)."""

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
    """Make the operation from parameters in the body, and those in the address, which the body must not have.

    resource: its name in the reason trail. renamed: new names of parameters by their old ones.
    takes_body: whether parameters in the body count. needs_body: whether a request without a body is refused. without:
    further members that the body may have. Raises RapiError for malformed or missing parameters.
    """
    given = _parameters(request, needs_body=needs_body) if takes_body else {}
    given = of_today({name: value for name, value in given.items() if name not in without}, renamed or {})
    overwritten = sorted(given.keys() & static.keys())
    if overwritten:
        raise RapiError(HTTPStatus.BAD_REQUEST, f"Can't overwrite static parameters {', '.join(overwritten)}")
    if "reason" in given:
        raise RapiError(HTTPStatus.BAD_REQUEST, "Invalid body parameters: 'reason' is a parameter of the address")
    # null counts as absent: clients send it for parameters that they omit.
    parameters = {name: value for name, value in {**given, **static}.items() if value is not None}
    parameters["reason"] = _reason(request, resource)
    try:
        return await made_aside(request.parts, lambda: _read(opcode, parameters))
    except ValidationError as error:
        raise RapiError(HTTPStatus.BAD_REQUEST, f"Invalid body parameters: {in_words(error)}") from None


def _read(opcode: type[Op], parameters: Mapping[str, Any]) -> Op:
    """Validate the parameters of an operation. Raises RapiError, ValidationError."""
    check_texts(parameters)
    return opcode.read(parameters)


def check_texts(value: Any) -> None:
    """Raise RapiError for a character, anywhere in a body or address, that PostgreSQL cannot store."""
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
    """Rename parameters to their current names. renamed: new names by old. Raises RapiError if both are given."""
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
    """Describe the errors of a body, parameter by parameter."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    words = [f"{'.'.join(map(str, each['loc'])) or 'the body'}: {each['msg']}" for each in found[:_MOST_NAMED]]
    more = len(found) - len(words)
    return "; ".join([*words, *([f"and {more} more"] if more else [])])

"""The OpenAPI document of one microversion, made from the table of routes and the models of bodies."""

import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response

from fleetlight.api.compute.protocol.route_table import ApiRoute, RouteTable
from fleetlight.api.documented import JSON, ApiOperation
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.errors import FAULT_KEYS, OTHER_FAULT_KEY, ApiError
from fleetlight.api.http.faults import fault_of
from fleetlight.api.http.headers import Header
from fleetlight.api.http.shapes import OBJECT, JsonType
from fleetlight.api.shared.endpoint import (
    EVENT_STREAM,
    LEGACY_HEADER,
    NEWEST,
    OLDEST,
    STANDARD_HEADER,
    negotiate,
    parse_version,
)
from fleetlight.api.shared.headers import OF_EVERY_ANSWER

_BASE = "/v2.1"
_PARAMETER = re.compile(r"\{([a-z_]+)\}")
_COMPONENTS = "#/components/schemas/{model}"
# Faults of any request: a wrong header or query, an unknown user, an unknown microversion or a stream where there is
# none, a media type other than JSON, too many wrong passwords (strategy `basic`), an internal error, and an identity
# service that does not answer.
_ALWAYS = (400, 401, 406, 415, 429, 500, 503)
_EVENTS = (
    "Server-sent events: `ready` when changes are followed from now on; `changed` with the server as the list shows "
    "it; `removed` with the id of a server that the list does not have any more; `incomplete` and `complete` as cells "
    "are lost and followed again; `reset` when changes were missed, so that the list has to be read again; `overrun`, "
    "and the end, for a reader that is too slow; `ended`, and the end, for one that may not read on, with the reason"
)
_WITHOUT_MICROVERSION = (
    "Without it a request is one of microversion {}.{}, and its answer is described in the document of that one"
).format(*OLDEST)
_TOO_LARGE = 413

OPENAPI = ApiOperation(
    "GET", "/openapi.json", OBJECT, is_open=True, query=("microversion",), faults=(), summary="This document"
)


class OpenApiDocument:
    """The endpoint of `GET /openapi.json`, which needs no login.

    The microversion is that of the parameter `microversion`, else that of the headers, else the newest.
    """

    def __init__(self, table: RouteTable, others: Sequence[ApiOperation] = ()) -> None:
        self._routes = table.routes
        self._others = others
        self._made: dict[int, dict[str, Any]] = {}

    async def show(self, http: Request) -> Response:
        try:
            minor = _wanted_minor(http)
        except ApiError as error:
            return fault_of(error)
        if minor not in self._made:
            self._made[minor] = document(self._routes, minor, self._others)
        return json_answer(self._made[minor])


def _wanted_minor(http: Request) -> int:
    text = http.query_params.get("microversion")
    if text is not None:
        return parse_version(text).minor
    if STANDARD_HEADER in http.headers or LEGACY_HEADER in http.headers:
        return negotiate(http.headers).minor
    return NEWEST[1]


def document(routes: Iterable[ApiRoute], minor: int, others: Iterable[ApiOperation] = ()) -> dict[str, Any]:
    """Make the document of microversion 2.`minor`. others: operations without microversions."""
    present = [route for route in routes if route.is_in(minor)]
    others = tuple(others)
    described: list[ApiRoute | ApiOperation] = [*present, *others]
    models = {each.body.model(minor) for each in described if each.body is not None}
    references, schemas = models_json_schema([(model, "validation") for model in models], ref_template=_COMPONENTS)
    # By model.
    bodies: dict[type, Any] = {model: schema for (model, _), schema in references.items()}
    paths: dict[str, dict[str, Any]] = {}
    for route in present:
        paths.setdefault(_BASE + route.path, {})[route.method.lower()] = _operation(route, minor, bodies)
    for other in others:
        paths.setdefault(other.path, {})[other.method.lower()] = _other_operation(other, minor, bodies)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Fleetlight compute API", "version": f"2.{minor}"},
        "paths": paths,
        "components": {
            "schemas": schemas.get("$defs", {}) | {"Fault": _fault_schema()},
            "securitySchemes": {"token": {"type": "apiKey", "in": "header", "name": "X-Auth-Token"}},
        },
        "security": [{"token": []}],
    }


def _operation(route: ApiRoute, minor: int, bodies: Mapping[Any, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _operation_id(route),
        "parameters": [*_parameters(route, minor), _microversion_parameter(minor)],
        "responses": _responses(route, minor),
    }
    summary = (route.handler.__doc__ or "").strip().partition("\n")[0]
    if summary:
        operation["summary"] = summary
    if route.body is not None:
        operation["requestBody"] = _request_body(bodies[route.body.model(minor)])
    return operation


def _request_body(schema: Any) -> dict[str, Any]:
    return {"required": True, "content": {JSON: {"schema": schema}}}


def _other_operation(operation: ApiOperation, minor: int, bodies: Mapping[Any, Any]) -> dict[str, Any]:
    return {
        "operationId": _operation_id(operation),
        "parameters": [
            *_path_parameters(operation.path),
            *map(_query_parameter, operation.query),
            *(header.parameter() for header in operation.takes),
        ],
        "responses": _other_responses(operation),
        **({"summary": operation.summary} if operation.summary else {}),
        **({"security": []} if operation.is_open else {}),
        **({} if operation.body is None else {"requestBody": _request_body(bodies[operation.body.model(minor)])}),
    }


def _other_responses(operation: ApiOperation) -> dict[str, Any]:
    responses: dict[str, Any] = {"default": {"description": "It cannot be done; the status and the body say why"}}
    if operation.faults is not None:
        responses = {str(status): _fault_response(status) for status in sorted({*_ALWAYS, *operation.faults})}
    for status in (operation.success, operation.unwell):
        if status is not None:
            responses[str(status)] = _described(status, operation.gives)
            if operation.answer is not None:
                content = {operation.media_type: {"schema": operation.answer.schema(OLDEST[1])}}
                responses[str(status)]["content"] = content
            if operation.events is not None:
                responses[str(status)]["content"][EVENT_STREAM] = _stream_schema(operation.events, OLDEST[1])
    return responses


def _described(status: int, headers: Iterable[Header]) -> dict[str, Any]:
    """Describe an answer without its content."""
    description: dict[str, Any] = {"description": HTTPStatus(status).phrase}
    shown = {header.name: header.response_header() for header in headers}
    return description | ({"headers": shown} if shown else {})


def _path_parameters(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _PARAMETER.findall(path)
    ]


def _operation_id(route: ApiRoute | ApiOperation) -> str:
    return re.sub(r"[^a-z0-9]+", "_", f"{route.method}{route.path}".lower()).strip("_")


def _parameters(route: ApiRoute, minor: int) -> list[dict[str, Any]]:
    in_query = [_query_parameter(name) for name, since in route.query.names.items() if since <= minor]
    return [*_path_parameters(route.path), *in_query, *(header.parameter() for header in route.takes)]


def _query_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": {"type": "string"}}


def _microversion_parameter(minor: int) -> dict[str, Any]:
    return {
        "name": STANDARD_HEADER,
        "in": "header",
        "required": False,
        "description": _WITHOUT_MICROVERSION,
        "schema": {"type": "string", "enum": [f"compute 2.{minor}"]},
    }


def _responses(route: ApiRoute, minor: int) -> dict[str, Any]:
    faults = {*_ALWAYS, *route.errors}
    if _PARAMETER.search(route.path):
        faults.add(404)
    responses: dict[str, Any] = {str(status): _success(route, status, minor) for status in route.success}
    responses |= {str(status): _fault_response(status) for status in sorted(faults)}
    if route.body is not None:
        text = {"text/plain": {"schema": {"type": "string"}}}
        responses[str(_TOO_LARGE)] = {"description": "The body is too large", "content": text}
    return responses


def _fault_response(status: int) -> dict[str, Any]:
    content = {JSON: {"schema": {"$ref": _COMPONENTS.format(model="Fault")}}}
    if status == HTTPStatus.NOT_FOUND:
        content["text/plain"] = {"schema": {"type": "string"}}
    return {"description": HTTPStatus(status).phrase, "content": content}


def _success(route: ApiRoute, status: int, minor: int) -> dict[str, Any]:
    """Describe a success, with the schema of its body if the status has one."""
    description = _described(status, (*OF_EVERY_ANSWER, *route.gives))
    if status == HTTPStatus.NO_CONTENT or route.answer is None:
        return description
    content = {JSON: {"schema": route.answer.schema(minor)}}
    if route.events is not None:
        content[EVENT_STREAM] = {"schema": _stream_schema(route.events, minor)}
    return description | {"content": content}


def _stream_schema(events: Mapping[str, JsonType], minor: int) -> dict[str, Any]:
    """Describe a stream: text with events, whose data is JSON text."""
    items = [
        {
            "type": "object",
            "properties": {
                "event": {"const": name},
                "id": {"type": "string"},
                "data": {"type": "string", "contentMediaType": JSON, "contentSchema": data.schema(minor)},
            },
            "required": ["event", "data"],
        }
        for name, data in events.items()
    ]
    return {
        "type": "string",
        "description": _EVENTS,
        "contentMediaType": EVENT_STREAM,
        "contentSchema": {"type": "array", "items": {"oneOf": items}},
    }


def _fault_schema() -> dict[str, Any]:
    """Describe a fault: one key that names it, with its code and message."""
    fault = {
        "type": "object",
        "properties": {"code": {"type": "integer"}, "message": {"type": "string"}},
        "required": ["code", "message"],
    }
    keys = sorted({*FAULT_KEYS.values(), OTHER_FAULT_KEY})
    return {"type": "object", "properties": dict.fromkeys(keys, fault), "minProperties": 1, "maxProperties": 1}

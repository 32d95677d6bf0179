"""Checks answers with the schemas that Nova itself has for the bodies of its answers.

Standard input: a line of JSON for each answer: the method and the address as Nova writes it (`route`), the microversion
(`minor`), and the body. Standard output: a line for each that Nova would not give, with the reason.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

from nova import exception
from nova.api.openstack.compute.routes import ROUTE_LIST
from nova.api.validation import validators


def schemas() -> dict[str, Any]:
    """Of each route, its schemas with the first and the last microversion of each."""
    found = {}
    for path, methods in ROUTE_LIST:
        if isinstance(methods, str):  # an old address that leads to another one
            continue
        for method, (controller, name) in methods.items():
            known = getattr(getattr(controller.args[0], name, None), "response_body_schemas", None)
            if known is not None:
                found[f"{method} {path}"] = known._schemas
    return found


def complaints(answer: dict[str, Any], known: dict[str, Any]) -> Iterator[str]:
    for schema, first, last in known[answer["route"]]:
        begin = 0 if first.is_null() else first.ver_minor
        end = 1000 if last.is_null() else last.ver_minor
        if begin <= answer["minor"] <= end:
            try:
                validators._SchemaValidator(schema, False, True).validate(answer["body"])
            except exception.ValidationError as error:
                yield str(error)
            return
    yield "Nova has no such answer in this microversion"


def main() -> None:
    known = schemas()
    for line in sys.stdin:
        answer = json.loads(line)
        for reason in complaints(answer, known):
            sys.stdout.write(json.dumps([answer["route"], answer["minor"], reason]) + "\n")


main()

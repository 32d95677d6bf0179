"""Prints which requests Nova's own schemas accept: a line of JSON for each body or query, changed in one place.

From each schema of bodies a small one is made that it accepts. Then each value in it, and each that may be added, is
replaced by each of VALUES; keys are left out, and others added. From each schema of queries one is made for each of
QUERY_VALUES of each parameter, one with the parameter twice, and one with a parameter that there is not.

Standard input: the method and the address of each route, as in `POST /servers/{}/action`. A line that is printed: that
(`route`), the first and the last microversion 2.N of the schema (`minors`), the `place` in the `body` and the `value`
there, or the `query` with the values of its parameter, and whether it is `accepted`; null: Nova breaks off.
"""

import json
import re
import sys
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from nova.api.openstack.compute.routes import ROUTE_LIST
from nova.api.validation import validators

NEWEST = 104
UUID = "70a599e0-31e7-49b7-b260-868f441e862b"
_UUIDS: tuple[str, ...] = (
    UUID,
    UUID.upper(),
    UUID.replace("-", ""),
    f"{{{UUID}}}",
    f"urn:uuid:{UUID}",
    f" {UUID}",
    f"{UUID}\n",
)
_UUIDS += (UUID[:-1], UUID.replace("-", "", 1), f"-{UUID}", f"{UUID[:-1]} ")
_ADDRESSES: tuple[str, ...] = (
    "10.0.0.1",
    "10.0.0",
    "10.1",
    "10.0.0.1/24",
    "010.0.0.1",
    "::1",
    "FE80::1",
    "fe80::1%eth0",
    "::ffff:1.2.3.4",
)
_ADDRESSES += (" 10.0.0.1", "10.0.0.256", "1::2::3", "10.0.0.0/8")
_NUMBERS: tuple[object, ...] = (0, 1, -1, 2, 1.0, 1.5, 2**31 - 1, 2**31, -(2**31), 2**63, 10**25)
_DIGITS = (
    "0",
    "1",
    "-1",
    "+1",
    "1.0",
    "1.5",
    "01",
    "1_0",
    " 1",
    "1 ",
    "1\n",
    "１",
    "2147483647",
    "2147483648",
    "1" * 25,
)
_WORDS = ("true", "TRUE", "yes", "OFF", "maybe", "null", "None", "AUTO", "auto", "none", "hard", "x")
_NAMES: tuple[str, ...] = (
    " a",
    "a ",
    "a b",
    "a\u00a0b",
    "\u00a0a",
    "a\n",
    "\ta",
    "a\tb",
    "\u200b",
    "\ue000",
    "ä",
    "\U0001f600",
    "a\u2028b",
)
_NAMES += ("-a", "a-", "a_b", "a.b", "a:b", "a/b", "a,b", "a@b", "a%b", "zone:host:node", "vd a", "/dev/vda", "", " ")
_LENGTHS = (1, 2, 19, 36, 60, 61, 63, 64, 255, 256)
_CONTENTS = ("YQ==", "YQ", "Y Q==", "YQ==\n", "YQ=", "é===", "=")
_COLLECTIONS: tuple[object, ...] = (
    [],
    {},
    [None],
    [1],
    ["a"],
    ["a", "a"],
    ["a", "b"],
    {"a": "b"},
    {"a": 1},
    {"a": None},
)
_COLLECTIONS += ([UUID], [UUID, UUID], [{}], [[]], {"": "b"}, {"a/b": "c"}, {"a" * 255: "b"}, {"a" * 256: "b"})
_COLLECTIONS += (
    {"a": "b" * 255},
    {"a": "b" * 256},
    {"a b": ""},
    {"ä": "b"},
    {"a\n": "b"},
    [f"t{n}" for n in range(51)],
)
VALUES: tuple[object, ...] = (
    *(None, True, False, *_NUMBERS, *_UUIDS, *_ADDRESSES, *_DIGITS, *_WORDS, *_NAMES, *_CONTENTS, *_COLLECTIONS),
    *("a" * length for length in _LENGTHS),
)
QUERY_VALUES = (
    *("", "0", "1", "-1", "+1", "01", "1.0", " 1", "1 ", "1_0", "1" * 25, "x", "a b", "ä", "true", "TRUE", "t", "None"),
    *(UUID, "2026-11-21", "2026-11-21T10:00:00Z", "2026-11-21 10:00:00", "2026-13-01", "["),
)
_FEW_QUERY_VALUES = ("", "1", "ä")
# For a place that has the same schema as in an earlier microversion.
_FEW: tuple[object, ...] = (None, 1, "a", UUID, [], {})


Place = tuple[str | None, ...]


def schemas(routes: Container[str], kind: str) -> Iterator[tuple[str, str, dict[str, Any], range]]:
    """Method and address, name of the action or nothing, schema, and the microversions 2.N that have it.

    kind: `body` or `query`.
    """
    for path, methods in ROUTE_LIST:
        if isinstance(methods, str):  # an old address that leads to another one
            continue
        address = re.sub(r"{\w+}", "{}", path)
        for method, (controller, name) in methods.items():
            if f"{method} {address}" not in routes:
                continue
            handlers = {"": getattr(controller.args[0], name, None)}
            if name == "action":
                for owner in (controller.args[0], *controller.args[1]):
                    handlers |= {action: getattr(owner, each) for action, each in owner.wsgi_actions.items()}
            for action, handler in handlers.items():
                known = getattr(handler, f"request_{kind}_schemas", None)
                for schema, first, last in [] if known is None else known._schemas:
                    since = 1 if first.is_null() else max(first.ver_minor, 1)
                    until = NEWEST if last.is_null() else last.ver_minor
                    if schema and since <= until:
                        yield f"{method} {address}", action, schema, range(since, until + 1)


class Maker:
    """Bodies for one schema. seen: places with their schemas that bodies were made for already."""

    def __init__(self, schema: dict[str, Any], seen: set[object]) -> None:
        self._schema = schema
        self._seen = seen
        self._validator = validators._SchemaValidator(schema, False, True)

    def accepts(self, body: object) -> bool | None:
        """None: Nova's check breaks off with an error of its own, which is a 500."""
        try:
            return _accepts(self._validator, body)
        except UnicodeDecodeError:
            return None

    def bodies(self) -> Iterator[tuple[Place, object, object]]:
        """Where something is changed, to what, and the whole body."""
        whole = example(self._schema)
        assert self.accepts(whole), (self._schema, whole)
        yield (), whole, whole
        for place in places(self._schema):
            for value in changed(self._schema, place, self._values_at(place)):
                yield place, value, put(self._schema, whole, place, value)

    def _values_at(self, place: Place) -> Sequence[object]:
        known = (place, repr(schema_at(self._schema, place)))
        is_new = place and known not in self._seen
        self._seen.add(known)
        return VALUES if is_new else _FEW


def _accepts(validator: Any, value: object) -> bool:
    """As the validator's own `validate`, which also takes the time to say what is wrong."""
    try:
        accepted: bool = validator.validator.is_valid(value)
    except TypeError:
        return False
    return accepted


def alternatives(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [schema] if "type" in schema else schema.get("oneOf") or schema.get("anyOf") or [schema]


def items(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = schema.get("items") or schema.get("prefixItems", [{}])[0]
    return found


def is_kind(schema: Mapping[str, Any], kind: str) -> bool:
    types = schema.get("type", ())
    return kind == types or (not isinstance(types, str) and kind in types)


def example(schema: Mapping[str, Any]) -> Any:
    """A small value that the schema accepts; not to be changed."""
    made = _EXAMPLES.get(id(schema))
    if made is None:
        # The schema is kept too, so that no other one gets its id.
        made = _EXAMPLES[id(schema)] = (schema, _example(schema))
    return made[1]


_EXAMPLES: dict[int, tuple[Mapping[str, Any], Any]] = {}


def _example(schema: Mapping[str, Any]) -> Any:
    if "oneOf" in schema and "type" not in schema:
        return example(schema["oneOf"][0])
    if is_kind(schema, "object"):
        required = schema.get("required") or schema.get("anyOf", [{}])[0].get("required", ())
        made = {name: example(schema["properties"][name]) for name in required}
        return made or {"a": "b"} if schema.get("minProperties") else made
    if is_kind(schema, "array"):
        return [example(items(schema)) for _ in range(schema.get("minItems", 0))]
    validator = validators._SchemaValidator(schema, False, True)
    values = ("abc", *schema.get("enum", ()), *VALUES)
    return next(value for value in values if _accepts(validator, value))


def places(schema: Mapping[str, Any]) -> Iterator[Place]:
    """The ways to all that may be there. None: into an element of an array."""
    yield ()
    for each in alternatives(schema):
        for name, below in each.get("properties", {}).items() if is_kind(each, "object") else ():
            for place in places(below):
                yield (name, *place)
        if is_kind(each, "array"):
            for place in places(items(each)):
                yield (None, *place)


def schema_at(schema: Mapping[str, Any], place: Place) -> Mapping[str, Any]:
    for step in place:
        for each in alternatives(schema):
            below = items(each) if step is None else each.get("properties", {}).get(step)
            if below is not None:
                schema = below
                break
    return schema


def changed(schema: Mapping[str, Any], place: Place, values: Sequence[object]) -> Iterator[object]:
    here = schema_at(schema, place)
    enums = [word for each in alternatives(here) for word in each.get("enum", ())]
    yield from (*values, *enums)
    for each in alternatives(here):
        if is_kind(each, "object"):
            least = example(each)
            yield {**least, "no such key": 1}
            for name in least:
                yield {key: value for key, value in least.items() if key != name}


def put(schema: Mapping[str, Any], whole: Any, place: Place, value: object) -> Any:
    """`whole` with the value at that place; what leads there is made if it is not there."""
    if not place:
        return value
    step, rest = place[0], place[1:]
    below = schema_at(schema, (step,))
    if step is None:
        return [put(below, example(below), rest, value)]
    whole = whole if isinstance(whole, dict) else _object(schema)
    inner = whole[step] if step in whole else example(below) if rest else None
    return {**whole, step: put(below, inner, rest, value)}


def _object(schema: Mapping[str, Any]) -> Any:
    return next(example(each) for each in alternatives(schema) if is_kind(each, "object"))


def queries(schema: Mapping[str, Any], seen: set[object]) -> Iterator[dict[str, list[str]]]:
    """seen: parameters with their schemas for which all values were given already."""
    yield {"no such name": ["1"]}
    for name, below in schema.get("properties", {}).items():
        yield {name: ["1", "1"]}
        known = (name, repr(below["items"]))
        is_new = below["items"] != {"type": "string"} and known not in seen
        seen.add(known)
        for value in (*QUERY_VALUES, *below["items"].get("enum", ())) if is_new else _FEW_QUERY_VALUES:
            yield {name: [str(value)]}


def bodies_of(routes: Container[str]) -> Iterator[dict[str, Any]]:
    seen = defaultdict[tuple[str, str], set[object]](set)
    for route, action, schema, minors in schemas(routes, "body"):
        maker = Maker(schema, seen[route, action])
        for place, value, body in maker.bodies():
            yield {
                "route": route,
                "action": action,
                "minors": [minors[0], minors[-1]],
                "place": place,
                "value": value,
                "body": body,
                "accepted": maker.accepts(body),
            }


def queries_of(routes: Container[str]) -> Iterator[dict[str, Any]]:
    seen = defaultdict[str, set[object]](set)
    for route, _action, schema, minors in schemas(routes, "query"):
        validator = validators._SchemaValidator(schema, False, False)
        for query in queries(schema, seen[route]):
            # Values mean the same as long as the schema holds; which names there are, others say elsewhere.
            last = minors[-1] if "no such name" in query else minors[0]
            accepted = _accepts(validator, query)
            yield {"route": route, "minors": [minors[0], last], "query": query, "accepted": accepted}


def main() -> None:
    routes = set(sys.stdin.read().splitlines())
    for line in chain(bodies_of(routes), queries_of(routes)):
        sys.stdout.write(json.dumps(line) + "\n")


main()

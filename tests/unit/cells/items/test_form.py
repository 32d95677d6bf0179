"""The number of the form of kept texts: who changes what would be made of some record is told to give it a new one.

That is known by the texts of some records. So these are held to telling all there is to tell: each member has several
values, of each of its types, and no condition in the rendering can be left out without another text of one of them.
"""

import ast
import hashlib
import inspect
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import count
from types import CodeType, FunctionType, NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest

from cells.items import members, view
from cells.items.kept import FORM, KEPT_FIELDS, to_text
from cells.items.view import PIECE_NAMES
from query.fields import Record
from tests.support.telling_records import telling_records

RECORDS = list(telling_records())
ABSENT = "(absent)"
CACHED = (members._host_id, members._date, members._time_of_day)


def digest() -> str:
    """Of the names and of the texts, as they are in a database."""
    content = "\n".join([*KEPT_FIELDS, *PIECE_NAMES, *map(to_text, RECORDS)])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def test_text_has_the_form_that_its_number_stands_for() -> None:
    """What would be made of the same records otherwise now makes the texts of all cells wrong: give it a new number.

    More records alone have another digest, and the same number.
    """
    assert (FORM, digest()) == (1, "2eed74517affafa9")


def test_each_member_has_values_of_each_of_its_types() -> None:
    shown: defaultdict[str, set[str]] = defaultdict(set)
    types: dict[str, Any] = {}
    for record in RECORDS:
        for name, hint, value in pieces_of(record):
            types[name] = hint
            note(name, hint, value, shown, types)
    noted = {name.partition(".")[0] for name in shown}
    assert {kind.__name__ for kind in structures()} <= noted
    lacking = {
        name
        for name, values in shown.items()
        if len(values) < 2
        or (is_one_of(NoneType, types[name]) and "null" not in values)
        or (is_one_of(msgspec.UnsetType, types[name]) and ABSENT not in values)
        or len(values - {"null", ABSENT}) < 2
    }
    assert lacking == set()


def pieces_of(record: Record) -> Iterator[tuple[str, Any, Any]]:
    """What a text has, in parts: name, type and value of each."""
    fields, *pieces = map(json.loads, to_text(record).split("\n"))
    yield from ((name, str | None if name != "uuid" else str, fields.get(name)) for name in KEPT_FIELDS)
    piece = dict(zip(PIECE_NAMES, pieces, strict=True))
    for name, segments in (("public", view._PUBLIC_SEGMENTS), ("admin", view._ADMIN_SEGMENTS)):
        for segment in segments:
            hint = get_type_hints(segment)["return"]
            yield hint.__name__, hint, piece[name]
    yield "image", members.Image | str, piece["image"]
    yield "fault", members.Fault | None, piece["fault"]
    yield "flavor_id", str | None, piece["flavor_id"]


def note(name: str, hint: Any, value: Any, shown: defaultdict[str, set[str]], types: dict[str, Any]) -> None:
    """Put down that a member of that type has this value, and what the members have that it consists of."""
    shown[name].add(value if value is ABSENT else json.dumps(value))
    for option in options_of(hint):
        if value and isinstance(value, dict) and option in structures():
            hints = get_type_hints(option)
            for member in msgspec.structs.fields(option):
                inner = f"{option.__name__}.{member.encode_name}"
                types[inner] = hints[member.name]
                note(inner, types[inner], value.get(member.encode_name, ABSENT), shown, types)
        elif get_origin(option) is Sequence and isinstance(value, list):
            for item in value:
                note(name, get_args(option)[0], item, shown, types)
        elif get_origin(option) is Mapping and isinstance(value, dict):
            for item in value.values():
                note(name, get_args(option)[1], item, shown, types)


def options_of(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if isinstance(hint, UnionType) else (hint,)


def is_one_of(kind: type, hint: Any) -> bool:
    return kind in options_of(hint)


def structures() -> list[type[msgspec.Struct]]:
    found = inspect.getmembers(members, inspect.isclass)
    return [
        kind for _, kind in found if issubclass(kind, msgspec.Struct) and kind not in (msgspec.Struct, members.Members)
    ]


class Simplified(ast.NodeTransformer):
    """Leaves out one condition of a module: the one with this number, from 0, as it comes to them."""

    def __init__(self, wanted: int) -> None:
        self._remaining = wanted
        self.line: int | None = None

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for simpler in _simpler(node):
            if not self._remaining:
                self._remaining -= 1
                self.line = getattr(node, "lineno", 0)
                return ast.fix_missing_locations(ast.copy_location(simpler, node))
            self._remaining -= 1
        return super().generic_visit(node)


def _simpler(node: ast.AST) -> Iterator[ast.AST]:
    """What could stand there if one thing less were looked at."""
    match node:
        case ast.IfExp():
            yield from (node.body, node.orelse)
        case ast.BoolOp():
            yield from node.values
        case ast.If():
            for decided in (True, False):
                yield ast.If(ast.Constant(decided), node.body, node.orelse)
        case ast.comprehension(ifs=[_, *_]):
            yield ast.comprehension(node.target, node.iter, [], node.is_async)
        case ast.Call(func=ast.Name("bool")):
            yield node.args[0]
        case ast.Call(func=ast.Attribute(attr="get"), args=[name, _]):
            yield ast.Call(node.func, [name], [])
        case _:
            return


def simplified(function: FunctionType) -> Iterator[tuple[int, CodeType]]:
    """For each condition of a function: its line, and the function as it is without it."""
    lines, first = inspect.getsourcelines(function)
    tree = ast.parse("".join(lines))
    for number in count():
        transformer = Simplified(number)
        changed = transformer.visit(deepcopy(tree))
        if transformer.line is None:
            return
        [definition] = (code for code in compile(changed, "simplified", "exec").co_consts if isinstance(code, CodeType))
        yield first + transformer.line - 1, definition


def rendering() -> list[FunctionType]:
    """Whatever makes a view."""
    made_by = [*vars(members).values(), view.render_view, view._joined]
    found = (inspect.unwrap(thing) for thing in made_by if callable(thing))
    return [thing for thing in found if isinstance(thing, FunctionType) and thing.__module__.startswith("cells.items")]


def forget_cached() -> None:
    for cached in CACHED:
        cached.cache_clear()


def test_every_condition_decides_the_text_of_some_record(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [to_text(record) for record in RECORDS]
    deciding, idle = 0, []
    for function in rendering():
        for line, code in simplified(function):
            with monkeypatch.context() as changed:
                changed.setattr(function, "__code__", code)
                forget_cached()
                if all(map(is_text_of, RECORDS, texts)):
                    idle.append(f"{function.__module__}:{line}")
                else:
                    deciding += 1
    forget_cached()
    assert idle == []
    assert deciding > 50


def is_text_of(record: Record, text: str) -> bool:
    try:
        return to_text(record) == text
    except Exception:  # noqa: BLE001  # no text at all is another one
        return False

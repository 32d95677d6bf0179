"""Predicates of job filters (contracts/ganeti-rapi, 10); pure.

A predicate is a name and an expression with the operators of queries (contracts/ganeti-query, 3). `jobid` matches the
number of the job, `opcode` the parameters of one of its operations, `reason` one entry of its trail.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleetlight.query.errors import RegularExpressionError
from fleetlight.query.operators.anything import RELATIONS
from fleetlight.query.regex import compile_pattern

WATERMARK = "watermark"
"""Stands for the number of the newest job when the filter was made."""
_DEEPEST = 10
_ID = "id"
_OF_REASONS = ("source", "reason", "timestamp")
_EQUAL = {"=", "=="}


class PredicateError(Exception):
    """A predicate is invalid; the text says why."""


@dataclass(frozen=True, slots=True)
class FilteredJob:
    """A job as filters see it. number: of the job. opcodes: the parameters of its operations, with `OP_ID`."""

    number: int
    opcodes: Sequence[Mapping[str, Any]]


def check_predicate(name: str, expression: Any) -> None:
    """Raises PredicateError for an unknown name, or an invalid expression."""
    fields = {"jobid": (_ID,), "opcode": None, "reason": _OF_REASONS}
    if name not in fields:
        raise PredicateError(f"There is no predicate '{name}'; there is: {', '.join(fields)}")
    _check(name, expression, fields[name], 1)


def holds(name: str, expression: Any, job: FilteredJob, watermark: int) -> bool:
    """Whether a checked predicate matches a job."""
    return any(_is_true(expression, item, watermark) for item in _items(name, job))


def _items(name: str, job: FilteredJob) -> Iterator[Mapping[str, Any]]:
    match name:
        case "jobid":
            yield {_ID: job.number}
        case "opcode":
            yield from job.opcodes
        case _:
            for opcode in job.opcodes:
                for entry in opcode.get("reason") or ():
                    yield dict(zip(_OF_REASONS, entry, strict=False))


def _check(name: str, expression: Any, fields: Sequence[str] | None, depth: int) -> None:
    if depth > _DEEPEST:
        raise PredicateError(f"{name}: only up to {_DEEPEST} levels are allowed")
    match expression:
        case ["&" | "|", *terms]:
            for term in terms:
                _check(name, term, fields, depth + 1)
            return
        case ["!", term]:
            _check(name, term, fields, depth + 1)
            return
        case ["?", str() as field]:
            pass
        case ["=~", str() as field, str() as pattern]:
            try:
                compile_pattern(pattern)
            except RegularExpressionError as error:
                raise PredicateError(f"{name}: {error}") from error
        case [str() as operator_, str() as field, _] if operator_ in RELATIONS or operator_ in {*_EQUAL, "!=", "=[]"}:
            pass
        case _:
            raise PredicateError(f"{name}: {str(expression)[:100]} is no condition")
    if fields is not None and field not in fields:
        raise PredicateError(f"{name}: there is no field '{field}'; there is: {', '.join(fields)}")


def _is_true(expression: Any, item: Mapping[str, Any], watermark: int) -> bool:
    match expression:
        case ["&", *terms]:
            return all(_is_true(term, item, watermark) for term in terms)
        case ["|", *terms]:
            return any(_is_true(term, item, watermark) for term in terms)
        case ["!", term]:
            return not _is_true(term, item, watermark)
        case ["?", field]:
            return bool(item.get(field))
        case ["=~", field, pattern]:
            value = item.get(field)
            return isinstance(value, str) and compile_pattern(pattern).search(value) is not None
        case [relation, field, wanted]:
            value = item.get(field)
            return _compares(relation, value, watermark if (field, wanted) == (_ID, WATERMARK) else wanted)
    return False


def _compares(relation: str, value: Any, wanted: Any) -> bool:
    if relation in _EQUAL or relation == "!=":
        return (type(value) is type(wanted) and value == wanted) is (relation != "!=")
    if relation == "=[]":
        return isinstance(value, list | str if type(wanted) is str else list) and wanted in value
    try:
        return value is not None and bool(RELATIONS[relation](value, wanted))
    except TypeError:
        return False

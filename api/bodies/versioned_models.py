"""Models whose fields differ between microversions, each written as one class.

    class _Changes(RequestModel):
        name: Name = ""
        description: Annotated[Description, Since(19)] = None
        hostname: Annotated[str, Since(90, Hostname), Since(94, Fqdn)] = ""
        personality: Annotated[list[File], Until(56)] = Field(default=[])

`model_at` makes the model of one microversion from the class: there, a key that the microversion lacks is unknown, and
its field has the default. So a handler need not know which model it got.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin

from pydantic import BaseModel, Field, create_model
from pydantic.fields import FieldInfo

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Since:
    """The key exists from microversion 2.`minor` on. kind: its type from there on, if it differs from the field's."""

    minor: int
    kind: Any = None
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class Until:
    """The key exists up to microversion 2.`minor`."""

    minor: int


def model_at(model: type[M], minor: int) -> type[M]:
    """Make the model of microversion 2.`minor` from `model`."""
    changes = sorted(_changes(model))
    return _derived(model, max((each for each in changes if each <= minor), default=1)) if changes else model


@cache
def _derived(model: type[M], minor: int) -> type[M]:
    kinds: dict[str, Any] = {}
    missing: dict[str, FieldInfo] = {}
    for name, field in model.model_fields.items():
        start = _start(field, minor)
        if start is None:
            missing[name] = field
        elif _marks(field) or _changes(_plain(field)):
            kind = _kind_at(_plain(field) if start.kind is None else start.kind, minor)
            default = ... if start.is_required else field.get_default()
            kinds[name] = (kind, Field(default=... if field.is_required() else default, alias=field.alias))
    made = create_model(f"{model.__name__}Since{minor}", __base__=model, __module__=model.__module__, **kinds)
    for name in missing:
        del made.__pydantic_fields__[name]
    made.model_rebuild(force=True)
    for name, field in missing.items():
        setattr(made, name, field.get_default())
    return made


@cache
def _changes(kind: Any) -> frozenset[int]:
    """Return the minors N at which a type changes."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        found: set[int] = set()
        for field in kind.model_fields.values():
            for mark in _marks(field):
                found.add(mark.minor if isinstance(mark, Since) else mark.minor + 1)
                found |= _changes(mark.kind) if isinstance(mark, Since) else set()
            annotation: Any = field.annotation
            found |= _changes(annotation)
        return frozenset(found)
    return frozenset(change for part in _parts(kind) for change in _changes(part))


def _kind_at(kind: Any, minor: int) -> Any:
    """Replace the models in a type by those of microversion 2.`minor`."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return model_at(kind, minor)
    if not _changes(kind):
        return kind
    parts = tuple(_kind_at(part, minor) for part in _parts(kind))
    origin = get_origin(kind)
    if origin is Annotated:
        return _annotated(parts[0], get_args(kind)[1:])
    return cast(Any, Union)[parts] if origin in {Union, UnionType} else cast(Any, origin)[parts]


def _parts(kind: Any) -> Iterator[Any]:
    """The types that a type consists of."""
    origin = get_origin(kind)
    if origin is Annotated:
        yield get_args(kind)[0]
    elif origin in {Union, UnionType, list, dict}:
        yield from get_args(kind)


def _marks(field: FieldInfo) -> list[Since | Until]:
    return [mark for mark in field.metadata if isinstance(mark, Since | Until)]


def _plain(field: FieldInfo) -> Any:
    """The type of a field without its marks."""
    return _annotated(field.annotation, [each for each in field.metadata if not isinstance(each, Since | Until)])


def _annotated(kind: Any, metadata: Any) -> Any:
    return cast(Any, Annotated)[(kind, *metadata)] if metadata else kind


def _start(field: FieldInfo, minor: int) -> Since | None:
    """Return the mark of a field that applies in microversion 2.`minor`; None if the field does not exist there."""
    marks = _marks(field)
    starts = [mark for mark in marks if isinstance(mark, Since)] or [Since(1)]
    start = max((each for each in starts if each.minor <= minor), key=lambda each: each.minor, default=None)
    has_ended = start is not None and any(
        isinstance(mark, Until) and start.minor <= mark.minor < minor for mark in marks
    )
    return None if has_ended else start

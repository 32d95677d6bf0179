"""`fleetlight index fields` and `fleetlight index find`: fields of newer producers that this program does not know."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from fleetlight.cli.errors import ConfigurationError
from fleetlight.cli.fleet import LoadedSettings
from fleetlight.cli.opened_index import opened_index
from fleetlight.cli.options import Output, OutputOption, examples
from fleetlight.cli.output import print_notice, print_rows
from fleetlight.indexer.backends.base import IndexWriter
from fleetlight.indexer.extra_fields import NO_KIND, SCHEMA_VIOLATION, search_terms
from fleetlight.indexer.settings import IndexSettings

_DEFAULT_LIMIT = 100


def register(app: typer.Typer) -> None:
    """Add the commands to the group `index`."""
    app.command(epilog=examples("fleetlight index fields", "fleetlight index fields --output json"))(fields)
    app.command(epilog=examples("fleetlight index find --field rack=r7"))(find)


def fields(settings: LoadedSettings, output: OutputOption = Output.TABLE) -> None:
    """List fields that newer producers have added, and whether instances can be found by them.

    A field without a schema, or with a value that contradicts its schema, is stored but not indexed.
    """
    with opened_index(settings.index) as writer:
        rows = _rows(writer)
    if not rows and output is Output.TABLE:
        print_notice("no producer has brought fields that this version does not know")
        return
    print_rows(
        output,
        [row.as_json() for row in rows],
        ("FIELD", "KIND", "STATE", "INSTANCES"),
        [[row.name, row.kind or "-", row.state, str(row.count)] for row in rows],
        right_aligned=("INSTANCES",),
    )


def find(
    field: Annotated[str, typer.Option("--field", metavar="NAME=VALUE", help="The field and the value to find.")],
    *,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Show at most this many instances.")] = _DEFAULT_LIMIT,
    settings: LoadedSettings,
    output: OutputOption = Output.TABLE,
) -> None:
    """Find instances by a field that `fleetlight index fields` shows as indexed, in the order of their uuids.

    Exit code 2 if no instance has such a field.
    """
    name, separator, value = field.partition("=")
    if not separator or not name:
        raise ConfigurationError(f"--field '{field}' must be NAME=VALUE")
    with opened_index(settings.index) as writer:
        uuids = writer.find_extra(search_terms(name, value), limit)
        if not uuids:
            _require_indexed(name, _rows(writer))
        documents = writer.read(uuids)
    found = [documents[uuid] for uuid in uuids if uuid in documents]
    shown = [
        {
            "uuid": document.id,
            "name": document.record["display_name"],
            "project_id": document.record["project_id"],
            "fields": document.extra.values if document.extra else {},
        }
        for document in found
    ]
    rows = [[each["uuid"], each["name"] or "-", each["project_id"] or "-"] for each in shown]
    print_rows(output, shown, ("UUID", "NAME", "PROJECT"), rows)


def count_schema_violations(settings: IndexSettings) -> int:
    """The number of values that are not indexed because they contradict their schemas. Raises IndexerError."""
    with opened_index(settings) as writer:
        return sum(row.count for row in _rows(writer) if row.is_schema_violation)


def _rows(writer: IndexWriter) -> list["_Row"]:
    return [_Row.of(field, count) for field, count in sorted(writer.count_extra_fields().items())]


def _require_indexed(name: str, rows: Sequence["_Row"]) -> None:
    """Raises ConfigurationError unless some instance could be found by this field."""
    if any(row.name == name and row.is_indexed for row in rows):
        return
    if any(row.name == name for row in rows):
        raise ConfigurationError(f"the field '{name}' is only kept: see `fleetlight index fields`")
    indexed = sorted({row.name for row in rows if row.is_indexed})
    known = f"known: {', '.join(indexed)}" if indexed else "no newer producer has brought any"
    raise ConfigurationError(f"no instance has a field '{name}' that can be searched for; {known}")


@dataclass(frozen=True, slots=True)
class _Row:
    """One field in the state that some documents have it in. kind: None if no schema describes it."""

    name: str
    kind: str | None
    is_schema_violation: bool
    count: int

    @classmethod
    def of(cls, field: str, count: int) -> "_Row":
        name, _, kind = field.rpartition(":")
        return cls(
            name,
            None if kind == NO_KIND else kind.removeprefix(SCHEMA_VIOLATION),
            kind.startswith(SCHEMA_VIOLATION),
            count,
        )

    @property
    def is_indexed(self) -> bool:
        return self.kind is not None and not self.is_schema_violation

    @property
    def state(self) -> str:
        if self.is_schema_violation:
            return "kept only, contradicts its schema"
        return "indexed" if self.is_indexed else "kept only"

    def as_json(self) -> dict[str, Any]:
        return {"field": self.name, "kind": self.kind, "state": self.state, "count": self.count}

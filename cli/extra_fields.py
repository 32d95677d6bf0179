"""`fleetlight index fields` and `fleetlight index find`: what newer producers say that this program does not know."""

from contextlib import closing
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from cli.errors import ConfigurationError
from cli.options import ConfigOption, DataDirOption, JsonOption, examples
from cli.output import counted, print_json, print_table
from cli.settings import load_settings
from indexer.backends import open_writer
from indexer.extra_fields import NOT_INDEXED, search_terms

_DEFAULT_LIMIT = 100


def register(app: typer.Typer) -> None:
    """Add the commands to the group `index`."""
    app.command(epilog=examples("fleetlight index fields", "fleetlight index fields --json"))(fields)
    app.command(epilog=examples("fleetlight index find --field rack=r7"))(find)


def fields(config: ConfigOption = None, data_dir: DataDirOption = None, json: JsonOption = False) -> None:
    """List fields that newer versions of producers have brought, and whether they can be searched for.

    A field is only kept, and not indexed, where no schema describes it or its value contradicts the schema.
    """
    settings = load_settings(config, data_dir)
    with closing(open_writer(settings.index)) as writer:
        found = sorted(writer.count_extra_fields().items())
    rows = [_Row.of(field, count) for field, count in found]
    if json:
        print_json([row.as_json() for row in rows])
        return
    print_table(
        ("FIELD", "KIND", "STATE", "COUNT"),
        [[row.name, row.kind, row.state, counted(row.count, "instance")] for row in rows],
    )


def find(
    field: Annotated[str, typer.Option("--field", metavar="NAME=VALUE", help="The field, and what it equals.")],
    *,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Show at most so many.")] = _DEFAULT_LIMIT,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    json: JsonOption = False,
) -> None:
    """Find instances by a field that `fleetlight index fields` shows as indexed, in the order of their uuids."""
    name, separator, value = field.partition("=")
    if not separator or not name:
        raise ConfigurationError(f"--field '{field}' must be NAME=VALUE")
    settings = load_settings(config, data_dir)
    with closing(open_writer(settings.index)) as writer:
        uuids = writer.find_extra(search_terms(name, value), limit)
        documents = writer.read(uuids)
    found = [documents[uuid] for uuid in uuids if uuid in documents]
    if json:
        print_json(
            [
                {
                    "uuid": document.id,
                    "name": document.record["display_name"],
                    "project_id": document.record["project_id"],
                    "fields": document.extra.values if document.extra else {},
                }
                for document in found
            ]
        )
        return
    print_table(
        ("UUID", "NAME", "PROJECT"),
        [
            [document.id, document.record["display_name"] or "-", document.record["project_id"] or "-"]
            for document in found
        ],
    )


@dataclass(frozen=True, slots=True)
class _Row:
    """One field, as it is in some documents. kind: NOT_INDEXED where it is only kept."""

    name: str
    kind: str
    count: int

    @classmethod
    def of(cls, field: str, count: int) -> "_Row":
        name, _, kind = field.rpartition(":")
        return cls(name, kind, count)

    @property
    def state(self) -> str:
        return "kept only" if self.kind == NOT_INDEXED else "indexed"

    def as_json(self) -> dict[str, Any]:
        kind = None if self.kind == NOT_INDEXED else self.kind
        return {"field": self.name, "kind": kind, "state": self.state, "count": self.count}

"""`fleetlight export`: writes all items of a type to a file, and a manifest of its content."""

import asyncio
import hashlib
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

import msgspec
import typer

from fleetlight.cli.errors import CommandError, ConfigurationError
from fleetlight.cli.list_forms import ItemWord, first_fields
from fleetlight.cli.operator_api import OpenApi, OperatorApi
from fleetlight.cli.options import examples
from fleetlight.cli.output import print_notice
from fleetlight.cli.work_progress import shown_progress
from fleetlight.query.fields_query import definitions
from fleetlight.resources.query_fields.catalog import ITEM_TYPES

if TYPE_CHECKING:
    from fleetlight.cli.export_files import ExportFile

app = typer.Typer()

_OK = 200
_OPTIONS = {"fields": "-o", "filter": "--filter", "order": "--order", "as_of": "--as-of"}
_INCOMPLETE = "not all cells could answer; `fleetlight explain` tells which. --allow-incomplete writes what there is"


class Format(StrEnum):
    """The format of a file."""

    PARQUET = "parquet"
    CSV = "csv"
    JSONL = "jsonl"


@dataclass(frozen=True, slots=True)
class Written:
    """The first and the last line of an export."""

    head: Mapping[str, Any]
    end: Mapping[str, Any]


@app.command(
    "export",
    epilog=examples(
        "fleetlight export instances",
        "fleetlight export instances --as-of 2026-11-24T10:00:00Z --format parquet --file fleet.parquet",
        "fleetlight export instances -o +uuid,project_id,ctime -F 'be/memory > 2048' --format jsonl",
        "fleetlight export nodes --format parquet --allow-incomplete",
    ),
)
def export(
    word: Annotated[ItemWord, typer.Argument(metavar="TYPE", help=", ".join(ItemWord), show_default=False)],
    *,
    form: Annotated[Format, typer.Option("--format", metavar="FORMAT", help=", ".join(Format))] = Format.CSV,
    file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The file to write or replace; TYPE.FORMAT by default."),
    ] = None,
    fields: Annotated[
        str | None,
        typer.Option("-o", metavar="FIELDS", help="Comma-separated fields; a leading + adds to the default ones."),
    ] = None,
    expression: Annotated[
        str | None, typer.Option("-F", "--filter", metavar="FILTER", help="Export only items that match this filter.")
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(
            metavar="FIELDS", help="Fields to sort by, the unique one by default; -FIELD sorts from high to low."
        ),
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Export instances as they were at this time, like 2026-11-24T10:00:00Z."),
    ] = None,
    allow_incomplete: Annotated[
        bool, typer.Option("--allow-incomplete", help="Write the file even if some cells cannot answer.")
    ] = False,
    api: OpenApi,
) -> None:
    """Write all instances, nodes, jobs and the like to a file, with a manifest of what it covers.

    The manifest, FILE.manifest.json, has the time, the filter, the freshness of each cell, the number of rows and the
    SHA-256. Both files appear once all is written, and replace existing ones. Memory use does not grow with the rows.
    Without --allow-incomplete nothing is written if cells are missing.
    """
    names = first_fields(word, fields)
    known = ITEM_TYPES[word.item_type]
    asked = {"what": known.name, "fields": ",".join(names), "all_projects": "1", "format": "jsonl"}
    # By the unique field every store finds the next page directly; by a name it sorts all rows for each page.
    options = {"filter": expression, "order": order or known.unique, "as_of": as_of}
    asked |= {name: value for name, value in options.items() if value is not None}
    path = file or Path(f"{word}.{form}")
    if not path.parent.is_dir():
        raise ConfigurationError(f"--file: there is no folder {path.parent}")
    from fleetlight.cli.export_files import file_of  # noqa: PLC0415 -- other commands would start a quarter later

    opened = file_of(form, known)
    with _replacing(path) as new:
        written = asyncio.run(_write(api, asked, opened, new, allow_incomplete=allow_incomplete))
        manifest = {"file": path.name, "format": form, **_manifest(word, written), "sha256": _sha256(new)}
    with _replacing(path.with_name(f"{path.name}.manifest.json")) as new:
        new.write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
    incomplete = "" if manifest["complete"] else "; not complete"
    print_notice(f"{manifest['rows']} {word} in {path}{incomplete}")


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary file beside `path`. It replaces `path` at the end, and is removed if the block fails."""
    new = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield new
        with new.open("rb") as written:
            os.fsync(written.fileno())
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


async def _write(
    api: OperatorApi,
    asked: Mapping[str, str],
    opened: "Callable[[Path], ExportFile]",
    new: Path,
    *,
    allow_incomplete: bool,
) -> Written:
    """Stream an export into the file `new`. Raises CommandError, ConfigurationError."""
    from fleetlight.cli.in_process import document_of  # noqa: PLC0415 -- other commands would start a quarter later

    path, query = "/fleetlight/query/export", urlencode(asked)
    async with api.opened() as app, app.stream(path, query=query) as answer:
        if answer.head.status != _OK:
            body = b"".join([piece async for piece in answer.pieces])
            document_of(replace(answer.head, body=body), _OPTIONS)
        file = opened(new)
        try:
            return await _copy(answer.pieces, file, allow_incomplete=allow_incomplete)
        finally:
            file.close()


async def _copy(pieces: AsyncIterator[bytes], file: "ExportFile", *, allow_incomplete: bool) -> Written:
    """Copy rows into the file without keeping them. Raises CommandError if the export is cut off or incomplete."""
    head: Mapping[str, Any] = {}
    end: Mapping[str, Any] = {}
    count = 0
    with shown_progress("rows") as started:
        show = started("export", None)
        async with aclosing(_batches(pieces)) as batches:
            async for lines in batches:
                if not head:
                    head = _said(lines.pop(0), allow_incomplete=allow_incomplete)
                    file.begin(head)
                if lines and lines[-1].startswith(b"{"):
                    end = _said(lines.pop(), allow_incomplete=allow_incomplete)
                count += len(lines)
                file.add(lines)
                show(count)
    if end.get("rows") != count:
        raise CommandError(f"the export was cut off after {count} rows; nothing is written")
    file.end(end)
    return Written(head, end)


async def _batches(pieces: AsyncIterator[bytes]) -> AsyncGenerator[list[bytes]]:
    """Yield whole lines, several at a time."""
    rest = b""
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        if lines:
            yield lines


def _said(line: bytes, *, allow_incomplete: bool) -> Mapping[str, Any]:
    """Decode the first or last line. Raises CommandError if it says incomplete, unless that is allowed."""
    said: Mapping[str, Any] = msgspec.json.decode(line)
    if not (said["complete"] or allow_incomplete):
        raise CommandError(f"not complete, so nothing is written: {_INCOMPLETE}")
    return said


def _manifest(word: ItemWord, written: Written) -> dict[str, Any]:
    from fleetlight.api.shared.proof import routes_said  # noqa: PLC0415 -- other commands would start a quarter later

    return {
        **{name: written.head[name] for name in ("what", "filter", "as_of")},
        **written.end,
        "cells": [asdict(said) for said in routes_said(written.head["route"])],
        "fields": definitions(ITEM_TYPES[word.item_type], written.head["fields"]),
        "fleetlight": version("fleetlight"),
    }


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

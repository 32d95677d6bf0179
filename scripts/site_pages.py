"""The source of the site: the documents of the checkout, and pages that are made of the program: FOLDER."""

import asyncio
import inspect
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from typer.main import get_command
from typer.testing import CliRunner

from fleetlight.bus.producer import Producer
from fleetlight.bus.signatures import ProducerKey
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.settings import FailureLimits
from fleetlight.cli.app import app
from fleetlight.cli.data_folder import DataFolder
from fleetlight.cli.in_process import document_of, opened_api
from fleetlight.cli.settings import load_embedded_settings
from fleetlight.manager.commands.embedded import set_up_cells, set_up_fleet
from fleetlight.notifications.registry import REGISTRY, json_schema

ROOT = Path(__file__).parents[1]
_AT_THE_ROOT = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE")
_TARGET = re.compile(r"\]\(([^)\s#]+)")
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_KINDS: Mapping[str, str] = {
    "Tutorial": "docs/tutorial",
    "How-to": "docs/console\ndocs/operations/*\ndocs/operations/runbooks/*",
    "Reference": "docs/reference/*",
    "Explanation": "docs/architecture\ndocs/explanation/*\ndocs/performance\ndocs/glossary\ndocs/decisions/*\n"
    "docs/contracts/*",
    "Project": "CHANGELOG\nCONTRIBUTING\nSECURITY",
}


def main() -> None:
    """Write all sources to the folder that is named."""
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    _copy_documents(folder)
    reference = folder / "docs" / "reference"
    (folder / "index.md").write_text(_index())
    (reference / "commands.md").write_text("\n".join(_commands()))
    (reference / "payloads.md").write_text("\n".join(_payloads()))
    (reference / "producer-kit.md").write_text("\n".join(_kit()))
    with TemporaryDirectory() as data:
        (reference / "http-api.md").write_text("\n".join(_http_api(asyncio.run(_openapi(Path(data))))))


def _copy_documents(folder: Path) -> None:
    """The documents, where they are in the checkout, and the files that they link to."""
    shutil.copytree(ROOT / "docs", folder / "docs")
    for name in _AT_THE_ROOT:
        shutil.copy(ROOT / name, folder / name)
    for document in list(folder.rglob("*.md")):
        for target in _TARGET.findall(document.read_text(encoding="utf-8")):
            linked = (document.parent / target).resolve()
            if "://" in target or linked.exists() or not linked.is_relative_to(folder.resolve()):
                continue
            linked.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / linked.relative_to(folder.resolve()), linked)


def _index() -> str:
    trees = (f"```{{toctree}}\n:hidden:\n:glob:\n:caption: {kind}\n\n{pages}\n```" for kind, pages in _KINDS.items())
    return "\n\n".join(["```{include} README.md\n```", *trees, ""])


def _commands() -> Iterator[str]:
    yield from ("# Commands", "", "What `--help` says of each; [the rest](command-line.md) is about all of them.", "")
    yield from _command(get_command(app))


def _command(command: Any, *words: str) -> Iterator[str]:
    """One command and those below it. command: of typer, whose types are private."""
    said = CliRunner().invoke(app, [*words, "--help"], prog_name="fleetlight", terminal_width=100).output
    lines = [line.rstrip() for line in _STYLE.sub("", said).strip().splitlines()]
    yield from (f"## `{' '.join(('fleetlight', *words))}`", "", "```text", *lines, "```", "")
    loaded = command.loaded() if hasattr(command, "loaded") else command
    for name, each in getattr(loaded, "commands", {}).items():
        yield from _command(each, *words, name)


def _payloads() -> Iterator[str]:
    yield from ("# Payloads", "", "Of notifications; `fleetlight notifications schemas DIR` writes their schemas.", "")
    for payload in REGISTRY.newest():
        yield from (f"## {payload.NAMESPACE} {payload.NAME} {payload.VERSION}", "", "```text")
        yield from (
            inspect.cleandoc(payload.__doc__ or ""),
            "```",
            "",
            "| field | type | needed |",
            "| --- | --- | --- |",
        )
        data = json_schema(payload)["properties"]["nova_object.data"]
        for name, schema in data["properties"].items():
            yield f"| `{name}` | {_type(schema)} | {'yes' if name in data.get('required', ()) else ''} |"
        yield ""


def _type(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "items" in schema:
        return f"list of {_type(schema['items'])}"
    return " or ".join(f"`{value}`" for value in schema.get("enum", ())) or str(schema.get("type", "any"))


def _kit() -> Iterator[str]:
    yield from ("# Python API of the producer kit", "", "[Producers](../operations/producers.md) shows it in use.", "")
    for each in (Producer, Producer.emit, Producer.send, Producer.close, ProducerKey.read):
        signature = str(inspect.signature(each)).replace("fleetlight.", "")
        yield from (f"## `{each.__qualname__}`", "", "```text", f"{each.__qualname__}{signature}", "")
        yield from (inspect.getdoc(each) or "", "```", "")


async def _openapi(data: Path) -> dict[str, Any]:
    folder = DataFolder(data)
    folder.create()
    with closing(set_up_fleet(folder, FailureLimits())) as fleet:
        return await _document(folder, fleet)


async def _document(folder: DataFolder, fleet: Fleet) -> dict[str, Any]:
    set_up_cells(folder, fleet, 1, 1)
    async with opened_api(load_embedded_settings(None, folder), fleet) as api:
        document: dict[str, Any] = document_of(await api.call("GET", "/openapi.json"))
        return document


def _http_api(document: Mapping[str, Any]) -> Iterator[str]:
    yield from (
        "# HTTP API",
        "",
        f"Of microversion {document['info']['version']}; `GET /openapi.json` has all of it.",
        "",
    )
    yield from ("| request | | query | answers |", "| --- | --- | --- | --- |")
    for path, operations in sorted(document["paths"].items()):
        for method, operation in operations.items():
            query = (each["name"] for each in operation.get("parameters", ()) if each.get("in") == "query")
            names = ", ".join(f"`{name}`" for name in query)
            statuses = ", ".join(sorted(operation["responses"]))
            yield f"| `{method.upper()} {path}` | {operation.get('summary', '')} | {names} | {statuses} |"


if __name__ == "__main__":
    main()

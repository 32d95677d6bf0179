"""`fleetlight export`: files of each format, and their manifest."""

import csv
import hashlib
import json
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.resources.query_fields.definitions import ResultStatus
from tests.unit.cli.conftest import Run
from tests.unit.cli.test_list_items import create, three_instances

__all__ = ["create", "three_instances"]

FIELDS = "name,uuid,be/memory,ctime,tags,disk.size/7,custom_beparams"


def manifest_of(name: str) -> Any:
    """The manifest of a file, whose digest must be right."""
    manifest = json.loads(Path(f"{name}.manifest.json").read_text())
    assert manifest["sha256"] == hashlib.sha256(Path(name).read_bytes()).hexdigest()
    return manifest


def listed(run: Run) -> Any:
    return json.loads(run("list", "instances", "-o", FIELDS, "--order", "uuid", "--output", "json").stdout)["data"]


def test_parquet_has_the_rows_of_the_list_in_columns_of_their_types(run: Run) -> None:
    done = run("export", "instances", "--format", "parquet", "-o", FIELDS, "--file", "all.parquet")
    assert done.exit_code == 0, done.stderr
    table = pq.read_table("all.parquet")
    assert [(field.name, str(field.type)) for field in table.schema] == [
        ("name", "string"),
        ("uuid", "string"),
        ("be/memory", "int64"),
        ("ctime", "timestamp[us, tz=UTC]"),
        ("tags", "list<element: string>"),
        ("disk.size/7", "int64"),
        ("custom_beparams", "string"),
        ("_statuses", "map<string, int8 ('_statuses')>"),
    ]
    rows, expected = table.to_pylist(), listed(run)
    names = FIELDS.split(",")
    for row, cells in zip(rows, expected, strict=True):
        values = {name: value for name, (_, value) in zip(names, cells, strict=True)}
        values["ctime"] = datetime.fromtimestamp(values["ctime"], UTC)
        values["custom_beparams"] = json.dumps(values["custom_beparams"], separators=(",", ":"))
        assert {name: row[name] for name in names} == values
        assert dict(row["_statuses"]) == {
            name: status for name, (status, _) in zip(names, cells, strict=True) if status
        }
    assert dict(rows[0]["_statuses"])["disk.size/7"] == ResultStatus.UNAVAILABLE
    covers = json.loads(pq.read_metadata("all.parquet").metadata[b"fleetlight"])
    assert (covers["rows"], covers["complete"], covers["what"]) == (3, True, "instance")


def test_manifest_says_what_is_in_the_file(run: Run, create: Callable[..., None]) -> None:
    now = datetime.now(UTC).isoformat()
    create("later.example.com")
    assert run("export", "instances", "--as-of", now, "-F", 'name =* "web*"', "-o", "name").exit_code == 0
    manifest = manifest_of("instances.csv")
    assert (manifest["what"], manifest["filter"], manifest["rows"], manifest["complete"]) == (
        "instance",
        'name =* "web*"',
        2,
        True,
    )
    assert datetime.fromisoformat(manifest["as_of"]) == datetime.fromisoformat(now)
    assert manifest["cells"] == [{"cell": "one", "route": "changelog", "watermark": None, "age_s": None}]
    assert [field["name"] for field in manifest["fields"]] == ["name"]
    assert (manifest["file"], manifest["format"]) == ("instances.csv", "csv")
    assert manifest["fleetlight"]


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_lines_are_those_that_the_api_sends(run: Run, form: str) -> None:
    assert run("export", "instances", "--format", form, "-o", "name,tags").exit_code == 0
    lines = Path(f"instances.{form}").read_text().splitlines()
    if form == "jsonl":
        first, *middle, last = lines
        assert '"rows' in last
        rows = [[value for _, value in json.loads(line)] for line in middle]
        assert json.loads(first)["fields"] == ["name", "tags"]
    else:
        names, *records = csv.reader(lines)
        assert names == ["name", "tags"]
        rows = [[name, json.loads(tags)] for name, tags in records]
    names_in_order = [name for [[_, name], *_] in listed(run)]
    assert rows == [[name, ["x", "y"]] for name in names_in_order]
    assert manifest_of(f"instances.{form}")["rows"] == 3


def test_row_groups_are_small_whatever_comes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetlight.cli.export_files._ROW_GROUP", 2)
    assert run("export", "instances", "--format", "parquet").exit_code == 0
    file = pq.ParquetFile("instances.parquet")
    assert [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)] == [2, 1]


def test_no_rows_make_a_file_too(run: Run) -> None:
    assert run("export", "instances", "--format", "parquet", "-F", 'name == "no"').exit_code == 0
    assert pq.read_table("instances.parquet").num_rows == 0
    assert manifest_of("instances.parquet")["rows"] == 0


def test_nothing_is_written_where_a_cell_is_missing_unless_that_is_allowed(run: Run) -> None:
    Path("instances.csv").write_text("of yesterday")
    engine = create_database_engine("sqlite:///fleet.db")
    with closing(Fleet(engine)) as fleet:
        fleet.add_cell("lost", CellKind.NATIVE, "sqlite:////nowhere/lost.db", "memory://")
    refused = run("export", "instances")
    assert refused.exit_code == 1
    assert "error: not complete, so nothing is written" in refused.stderr
    assert Path("instances.csv").read_text() == "of yesterday"
    assert not list(Path.cwd().glob("*.manifest.json"))
    assert not list(Path.cwd().glob(".*.part"))
    done = run("export", "instances", "--allow-incomplete")
    assert done.exit_code == 0
    assert done.stderr.rstrip().endswith("3 instances in instances.csv; not complete")
    manifest = manifest_of("instances.csv")
    assert manifest["complete"] is False
    assert {each["cell"]: each["route"] for each in manifest["cells"]} == {"one": "live", "lost": "skipped"}


def test_parquet_without_pyarrow_is_refused_by_name(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    refused = run("export", "instances", "--format", "parquet")
    assert (refused.exit_code, refused.stderr) == (
        2,
        "error: --format parquet needs pyarrow: install 'fleetlight[export]'\n",
    )
    assert run("export", "instances").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("-o", "colour"), "-o: "),
        (("--filter", "name =="), ""),
        (("--as-of", "monday"), "--as-of: 'monday' is no time with its zone"),
        (("--file", "no/such/folder.csv"), "--file: there is no folder no/such"),
    ],
)
def test_what_makes_no_sense_is_refused_and_leaves_no_file(run: Run, arguments: tuple[str, ...], says: str) -> None:
    refused = run("export", "instances", *arguments)
    assert refused.exit_code == 2
    assert refused.stderr.startswith(f"error: {says}")
    assert not [path for path in Path.cwd().iterdir() if "instances" in path.name]


def test_value_of_another_kind_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetlight.cli.export_files.ParquetFile._type_of", lambda _self, _field: pa.int64())
    refused = run("export", "instances", "--format", "parquet", "-o", "name")
    assert refused.exit_code == 1
    assert refused.stderr.startswith("error: name: a value is none of kind text")
    assert not Path("instances.parquet").exists()

"""`fleetlight index fields` and `find`: fields that newer producers brought, as people see them."""

import json
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from fleetlight.cli.data_folder import DataFolder
from fleetlight.cli.settings import load_settings
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.extra_fields import Extra
from fleetlight.manager.commands.embedded import set_up_fleet
from tests.support.fleets.documents import make_document, make_uuid
from tests.unit.cli.conftest import Run


@pytest.fixture(autouse=True)
def index(empty_place: Path) -> None:
    """Three instances with a rack, which is no text once, and one without; a colour that no schema describes."""
    folder = DataFolder(empty_place / "fleetlight-data")
    folder.create()
    set_up_fleet(folder).close()
    extras = [
        Extra("fleetlight/InstancePayload-1.9", {"rack": "r7"}, {"rack": "text"}),
        Extra("fleetlight/InstancePayload-1.9", {"rack": "r7"}, {"rack": "text"}),
        Extra("fleetlight/InstancePayload-1.9", {"rack": 7, "colour": "red"}, {"rack": "text"}),
        None,
    ]
    with closing(open_writer(load_settings(None, None).index)) as writer:
        writer.prepare()
        writer.write([replace(make_document(number), extra=extra) for number, extra in enumerate(extras)])


def test_fields_are_listed_with_what_became_of_them(run: Run) -> None:
    lines = run("index", "fields").stdout.splitlines()
    assert [line.split() for line in lines if "rack" in line] == [
        ["rack", "text", "kept", "only,", "contradicts", "its", "schema", "1"],
        ["rack", "text", "indexed", "2"],
    ]
    assert json.loads(run("index", "fields", "--output", "json").stdout) == [
        {"field": "colour", "kind": None, "state": "kept only", "count": 1},
        {"field": "rack", "kind": "text", "state": "kept only, contradicts its schema", "count": 1},
        {"field": "rack", "kind": "text", "state": "indexed", "count": 2},
    ]


def test_status_tells_of_values_that_contradict_their_schemas(run: Run) -> None:
    said = run("index", "status").stderr
    assert said == "values of newer producers contradict their schemas: 1; see `fleetlight index fields`\n"


def test_instances_are_found_by_such_a_field(run: Run) -> None:
    result = run("index", "find", "--field", "rack=r7", "--output", "json")
    assert [found["uuid"] for found in json.loads(result.stdout)] == [make_uuid(0), make_uuid(1)]
    assert json.loads(result.stdout)[0]["fields"] == {"rack": "r7"}
    table = run("index", "find", "--field", "rack=r7", "--limit", "1").stdout
    assert make_uuid(0) in table
    assert make_uuid(1) not in table


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("shelf", "no instance has a field 'shelf' that can be searched for; known: rack"),
        ("colour", "the field 'colour' is only kept"),
    ],
)
def test_field_that_cannot_be_searched_for_is_named(run: Run, field: str, said: str) -> None:
    result = run("index", "find", "--field", f"{field}=red")
    assert result.exit_code == 2
    assert said in result.stderr


def test_value_that_no_instance_has_finds_none(run: Run) -> None:
    result = run("index", "find", "--field", "rack=r8", "--output", "json")
    assert (result.exit_code, json.loads(result.stdout)) == (0, [])


def test_field_without_a_value_is_refused(run: Run) -> None:
    result = run("index", "find", "--field", "rack")
    assert result.exit_code == 2
    assert "must be NAME=VALUE" in result.stderr

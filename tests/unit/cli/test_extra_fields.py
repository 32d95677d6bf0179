"""`fleetlight index fields` and `find`: fields that newer producers brought, as people see them."""

import json
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from cli.data_folder import DataFolder
from cli.embedded import set_up_fleet
from cli.settings import load_settings
from indexer.backends import open_writer
from indexer.extra_fields import Extra
from tests.support.documents import make_document, make_uuid
from tests.unit.cli.conftest import Run


@pytest.fixture(autouse=True)
def index(empty_place: Path) -> None:
    """Three instances with a rack, one of which is no text, and one without."""
    folder = DataFolder(empty_place / "fleetlight-data")
    folder.create()
    set_up_fleet(folder).close()
    extras = [
        Extra("fleetlight/InstancePayload-1.9", {"rack": "r7"}, {"rack": "text"}),
        Extra("fleetlight/InstancePayload-1.9", {"rack": "r7"}, {"rack": "text"}),
        Extra("fleetlight/InstancePayload-1.9", {"rack": 7}, {"rack": "text"}),
        None,
    ]
    with closing(open_writer(load_settings(None, None).index)) as writer:
        writer.prepare()
        writer.write([replace(make_document(number), extra=extra) for number, extra in enumerate(extras)])


def test_fields_are_listed_with_what_became_of_them(run: Run) -> None:
    lines = run("index", "fields").stdout.splitlines()
    assert [line.split() for line in lines if "rack" in line] == [
        ["rack", "-", "kept", "only", "1", "instance"],
        ["rack", "text", "indexed", "2", "instances"],
    ]
    assert json.loads(run("index", "fields", "--json").stdout) == [
        {"field": "rack", "kind": None, "state": "kept only", "count": 1},
        {"field": "rack", "kind": "text", "state": "indexed", "count": 2},
    ]


def test_instances_are_found_by_such_a_field(run: Run) -> None:
    result = run("index", "find", "--field", "rack=r7", "--json")
    assert [found["uuid"] for found in json.loads(result.stdout)] == [make_uuid(0), make_uuid(1)]
    assert json.loads(result.stdout)[0]["fields"] == {"rack": "r7"}
    table = run("index", "find", "--field", "rack=r7", "--limit", "1").stdout
    assert make_uuid(0) in table
    assert make_uuid(1) not in table


def test_field_without_a_value_is_refused(run: Run) -> None:
    result = run("index", "find", "--field", "rack")
    assert result.exit_code == 2
    assert "must be NAME=VALUE" in result.stderr

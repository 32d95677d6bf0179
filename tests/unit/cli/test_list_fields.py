"""`fleetlight list-fields`."""

import json

import pytest
from typer.testing import CliRunner

from fleetlight.cli.app import app
from fleetlight.cli.list_forms import LIST_FORMS, ItemWord
from fleetlight.resources.query_fields.catalog import ITEM_TYPES

_RUNNER = CliRunner()


def test_every_item_type_has_a_word() -> None:
    assert {word.item_type for word in ItemWord} == set(ITEM_TYPES)


def test_fields_are_a_table_in_nice_order() -> None:
    result = _RUNNER.invoke(app, ["list-fields", "instances"])
    names = [line.split()[0] for line in result.stdout.splitlines()]
    assert result.exit_code == 0
    assert names[0] == "Name"
    assert len(names) == len(ITEM_TYPES["instance"]) + 1
    assert names.index("disk.size/9") < names.index("disk.size/10")


def test_named_fields_keep_their_order() -> None:
    result = _RUNNER.invoke(app, ["list-fields", "nodes", "mfree", "name", "--separator", "|", "--no-headers"])
    assert [line.split("|")[:3] for line in result.stdout.splitlines()] == [
        ["mfree", "Storage size", "MFree"],
        ["name", "Text", "Node"],
    ]


def test_unknown_field_is_shown_and_ends_with_14() -> None:
    result = _RUNNER.invoke(app, ["list-fields", "jobs", "id", "foo"])
    assert result.exit_code == 14
    assert "foo" in result.stdout
    assert "Warning: there is no field 'foo'" in result.stderr


def test_json_is_the_answer_of_a_fields_query() -> None:
    result = _RUNNER.invoke(app, ["list-fields", "exports", "node", "--output", "json"])
    [field] = json.loads(result.stdout)["fields"]
    assert field == {"name": "node", "title": "Node", "kind": "text", "doc": field["doc"]}


def test_options_of_all_commands_are_taken_although_fields_are_those_of_every_fleet() -> None:
    options = ["--config", "no-such-file.toml", "--data-dir", "no-such-folder"]
    result = _RUNNER.invoke(app, ["list-fields", "exports", "node", *options])
    assert (result.exit_code, "node" in result.stdout) == (0, True), result.output


@pytest.mark.parametrize("arguments", [["list-fields"], ["list-fields", "servers"]])
def test_wrong_type_is_wrong_usage(arguments: list[str]) -> None:
    assert _RUNNER.invoke(app, arguments).exit_code == 2


def test_lists_show_only_fields_that_exist() -> None:
    assert set(LIST_FORMS) == set(ItemWord)
    for word, form in LIST_FORMS.items():
        assert {*form.fields, *form.formats} <= set(ITEM_TYPES[word.item_type]), word

"""JSON columns of Nova in the shapes that rows of many years have."""

import json

import pytest

from fleetlight.cells.kinds.nova_db.json_columns import addresses, current_flavor, decoded, trusted_certificates


def envelope(data: object) -> dict[str, object]:
    return {"nova_object.name": "Thing", "nova_object.version": "1.0", "nova_object.data": data}


def test_envelopes_are_opened_all_the_way_down() -> None:
    text = json.dumps(envelope({"inner": envelope({"a": 1}), "list": envelope({"objects": [envelope({"b": 2})]})}))
    assert decoded(text) == {"inner": {"a": 1}, "list": [{"b": 2}]}


def test_text_that_was_cut_off_is_as_good_as_none() -> None:
    assert decoded('{"cur": {"nova_ob') is None
    assert current_flavor('{"cur": {"nova_ob') is None
    assert addresses('[{"id": "x", "netw') == []


def test_flavor_of_an_old_row_gets_defaults_for_what_it_lacks() -> None:
    size = {"flavorid": "1", "name": "m1", "memory_mb": 512, "vcpus": 1, "root_gb": 1, "ephemeral_gb": 0}
    flavor = current_flavor(json.dumps({"cur": envelope(size), "old": None, "new": None}))
    assert flavor is not None
    assert flavor["swap"] == 0
    assert flavor["extra_specs"] is None
    assert current_flavor(json.dumps({"cur": None})) is None
    assert current_flavor(None) is None


def test_addresses_of_a_port_are_its_fixed_ones_and_then_its_floating_ones() -> None:
    fixed = [
        {
            "address": "10.0.0.4",
            "version": 4,
            "type": "fixed",
            "floating_ips": [{"address": "192.0.2.4", "type": "floating"}],
        },
        {"address": "10.0.0.5", "version": 4, "type": "fixed"},
    ]
    port = {"id": "p", "address": "fa:16", "network": {"label": "private", "subnets": [{"ips": fixed}]}}
    found = addresses(json.dumps([{"id": "without a network", "network": None}, port]))
    assert [(each["address"], each["type"]) for each in found] == [
        ("10.0.0.4", "fixed"),
        ("10.0.0.5", "fixed"),
        ("192.0.2.4", "floating"),
    ]
    assert {each["label"] for each in found} == {"private"}


@pytest.mark.parametrize(
    "text",
    [
        '"text"',
        "[1]",
        '{"a": 1}',
        '[{"network": "x"}]',
        '[{"network": {"subnets": [{"ips": [{}]}]}}]',
        '[{"network": {"subnets": 7}}]',
        "[" * 5000 + "]" * 5000,
        '["\udcff"]',
    ],
)
def test_text_that_says_something_else_is_as_good_as_none(text: str) -> None:
    """One row would take the list of all cells away, and end the indexer."""
    assert addresses(text) == []
    assert current_flavor(text) is None
    assert trusted_certificates(text) is None


def test_certificates_are_their_ids() -> None:
    assert trusted_certificates(json.dumps(envelope({"ids": ["a", "b"]}))) == ["a", "b"]
    assert trusted_certificates(None) is None

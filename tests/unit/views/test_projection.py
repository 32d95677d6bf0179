"""A projection reads no more of a row than it says, and makes the same item of it wherever the row is read."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlight.resources.errors import UnknownFieldError
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.resources.server_status import WITH_FAULT
from fleetlight.views.compute.view import BriefTemplate, FullTemplate, ItemTemplate, render_view
from fleetlight.views.projection import FieldValues
from tests.support.fleets.documents import make_record
from tests.support.oracles.shown_items import stored_item

BASES: Mapping[str, Any] = {"versioned_base": "http://api/v2.1", "plain_base": "http://api"}
_FLAVOR = {"vcpus": 1, "memory_mb": 2, "root_gb": 3, "ephemeral_gb": 4, "name": "m1"}
_FAULT = {"code": 500, "created_at": 1, "message": "no host", "details": "why"}
_ADDRESS = {"address": "10.0.0.1", "label": "private", "version": 4, "mac": "fa:16:3e:4c:2c:30"}

records = st.fixed_dictionaries(
    {
        "vm_state": st.sampled_from(("active", "error", "building", "stopped", None)),
        "task_state": st.sampled_from((None, "rebooting", "resize_prep")),
        "deleted": st.booleans(),
        "image_ref": st.sampled_from(("", "7a", None)),
        "image_properties": st.sampled_from((None, {"os_type": "linux"})),
        "flavor": st.sampled_from((None, _FLAVOR)),
        "flavor_id": st.sampled_from((None, "1")),
        "fault": st.sampled_from((None, _FAULT)),
        "ip_addresses": st.sampled_from((None, [_ADDRESS])),
        "block_devices": st.sampled_from((None, [{"volume_id": "v", "delete_on_termination": True}])),
        "host": st.sampled_from((None, "node-1")),
        "updated_at": st.sampled_from((None, 5)),
        "progress": st.sampled_from((None, 7)),
        "tags": st.sampled_from((None, [], ["a"])),
        "locked_reason": st.sampled_from((None, "mine")),
    }
).map(lambda changes: make_record() | changes)


@given(record=records, minor=st.integers(1, 104), is_admin=st.booleans(), is_full=st.booleans())
def test_template_makes_its_item_of_the_fields_that_it_says(
    record: dict[str, Any], minor: int, is_admin: bool, is_full: bool
) -> None:
    template: ItemTemplate
    if is_full:
        template = FullTemplate(minor, is_admin=is_admin, host_statuses={"c0": {b'"node-1"': b'"UP"'}}, **BASES)
    else:
        template = BriefTemplate(minor, **BASES)
    assert template.fields is not None
    read = {name: record[name] for name in template.fields}
    assert template.render_record(read, "c0") == stored_item(template, render_view(record), "c0")
    if template.shows_damaged:
        template.render_damaged(read)


def test_what_only_administrators_are_shown_is_not_read_for_others() -> None:
    mine, theirs = (FullTemplate(104, is_admin=is_admin, **BASES).fields or () for is_admin in (True, False))
    assert {*mine} - {*theirs} >= {"user_data", "kernel_id", "reservation_id", "instance_name"}
    for name in ("keypairs", "shares", "scheduler_hints", "server_groups", "launched_on"):
        assert (name in mine) == (name == "scheduler_hints")


def test_some_status_shows_a_fault() -> None:
    """Else the records above would prove nothing of it."""
    assert "ERROR" in WITH_FAULT


def test_values_of_fields_are_an_array_in_the_order_of_their_names() -> None:
    names = ("display_name", "deleted", "tags", "metadata", "created_at", "host", "fault")
    projection = FieldValues(INSTANCE_FIELDS, names)
    record = {"display_name": 'é"', "deleted": False, "tags": None, "metadata": {"a": None}, "created_at": 5}
    item = projection.render_record({**record, "host": None, "fault": None})
    assert json.loads(item) == ['é"', False, [], {"a": None}, 5, None, None]
    with pytest.raises(UnknownFieldError, match="nope"):
        FieldValues(INSTANCE_FIELDS, ("nope",))

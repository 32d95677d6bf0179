"""What a compute API shows of an instance is read back as it was."""

from typing import Any

import msgspec
import pytest

from fleetlight.cells.kinds.nova_api.items import read_item
from fleetlight.views.compute.view import FullTemplate, render_view
from tests.support.fleets.documents import CREATED_AT, make_record
from tests.support.oracles.shown_items import stored_item

SECOND = 1_000_000


def shown(record: dict[str, Any], minor: int = 104) -> dict[str, Any]:
    template = FullTemplate(minor, is_admin=True, versioned_base="http://x/v2.1", plain_base="http://x")
    item: dict[str, Any] = msgspec.json.decode(stored_item(template, render_view(record)))
    return item


def whole_record(**changes: Any) -> dict[str, Any]:
    whole = {
        "created_at": CREATED_AT // SECOND * SECOND,
        "updated_at": CREATED_AT // SECOND * SECOND + SECOND,
        "launched_at": CREATED_AT + 5,
        "metadata": {"role": "web"},
        "tags": ["a", "b"],
        "locked": True,
        "locked_reason": "mine",
        "availability_zone": "az1",
        "access_ip_v4": "10.0.0.1",
        "image_ref": "70a599e0-31e7-49b7-b260-868f441e862b",
        "image_properties": {"os": "linux"},
        "security_groups": ["default"],
        "hostname": "web",
        "instance_name": "instance-1",
        "user_data": "aGk=",
        "auto_disk_config": True,
        "progress": 50,
    }
    return make_record(**{**whole, **changes})


def test_every_field_that_is_shown_is_read_back() -> None:
    record = whole_record()
    carried = read_item(shown(record))
    assert {name: record[name] for name in carried if name not in {"ip_addresses", "block_devices", "flavor"}} == {
        name: value for name, value in carried.items() if name not in {"ip_addresses", "block_devices", "flavor"}
    }
    assert carried.keys() >= {"uuid", "host", "vm_state", "locked_reason", "tags", "user_data", "deleted", "image_ref"}


def test_what_was_read_back_looks_the_same_again() -> None:
    record = whole_record(
        ip_addresses=[
            {"label": "n", "address": "10.0.0.9", "version": 4, "mac": "fa:16:3e:00:00:01", "meta": {}, "type": "fixed"}
        ],
        block_devices=[{"volume_id": "v1", "delete_on_termination": True}],
        flavor={"vcpus": 1, "memory_mb": 512, "root_gb": 1, "ephemeral_gb": 0, "swap": 0, "name": "tiny"},
        vm_state="error",
        fault={"code": 500, "created_at": CREATED_AT // SECOND * SECOND, "message": "no", "details": "at all"},
    )
    item = shown(record)
    assert shown(make_record(**{**record, **read_item(item)})) == item


def test_deleted_server_has_the_time_of_its_end() -> None:
    carried = read_item(shown(whole_record(deleted=True, vm_state="deleted", terminated_at=CREATED_AT + 9)))
    assert (carried["deleted"], carried["deleted_at"]) == (True, CREATED_AT + 9)


def test_what_an_older_microversion_does_not_show_is_not_carried() -> None:
    assert not read_item(shown(whole_record(), minor=1)).keys() & {"flavor", "tags", "locked", "locked_reason"}


@pytest.mark.parametrize("item", [{}, {"id": "no uuid", "status": "ACTIVE"}, {"id": 7}, None, {"id": "x" * 36}])
def test_what_is_no_server_is_refused(item: Any) -> None:
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        read_item(item)

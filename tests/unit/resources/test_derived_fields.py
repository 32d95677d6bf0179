"""What follows from the other fields of an instance, and is stored so that lists come in its order."""

from typing import Any

import pytest

from fleetlight.resources.derived_fields import DERIVED_FROM, derived_values
from fleetlight.resources.instance import BLANK_INSTANCE, DERIVED_FIELDS
from fleetlight.resources.query_fields.ganeti import kept_fields, kept_in_part

FLAVOR = {"flavorid": "1", "memory_mb": 2048, "vcpus": 2, "root_gb": 10, "ephemeral_gb": 1, "swap": 512}
GANETI = {"beparams": {"maxmem": 300, "vcpus": 3}, "disk_usage": 77}


@pytest.mark.parametrize(
    ("values", "memory_mb", "vcpus", "disk_usage"),
    [
        ({}, None, None, 0),
        ({"flavor": FLAVOR, "image_ref": "i"}, 2048, 2, 11 * 1024 + 512),
        ({"flavor": FLAVOR, "image_ref": "", "block_devices": [{"volume_id": "v"}]}, 2048, 2, 1024 + 512),
        ({"flavor": FLAVOR, "ganeti": kept_fields(GANETI)}, 300, 3, 77),
        ({"flavor": FLAVOR, "ganeti": kept_in_part({"disk.sizes": [5, 6], "disk_template": "drbd"})}, 2048, 2, 267),
        ({"ganeti": kept_in_part({"custom_beparams": {"maxmem": 9}, "disk_template": "diskless"})}, 9, None, 0),
        ({"flavor": {"memory_mb": "much", "vcpus": True, "root_gb": None}, "image_ref": "i"}, None, None, 0),
        ({"flavor": {"root_gb": "20", "ephemeral_gb": 1, "swap": [1]}, "image_ref": "i"}, None, None, 1024),
        ({"flavor": {"root_gb": {}, "swap": 1.5}, "image_ref": "i"}, None, None, None),
        ({"flavor": {"memory_mb": 2**63, "vcpus": 2**63 - 1}}, None, 2**63 - 1, 0),
        ({"flavor": FLAVOR, "ganeti": {}}, None, None, None),
        ({"flavor": FLAVOR, "ganeti": {"values": 5, "no_data": None, "offline": "x"}}, None, None, None),
        ({"ganeti": kept_in_part({"custom_beparams": ["maxmem"], "disk.sizes": [5, "6"]})}, None, None, None),
    ],
)
def test_sizes_are_what_its_cluster_says_else_what_the_flavor_and_the_disks_say(
    values: dict[str, Any], memory_mb: int | None, vcpus: int | None, disk_usage: int | None
) -> None:
    found = derived_values({**BLANK_INSTANCE, **values})
    assert (found["memory_mb"], found["vcpus"], found["disk_usage"]) == (memory_mb, vcpus, disk_usage)


def test_every_derived_field_has_its_value_from_here_and_from_no_other_derived_field() -> None:
    assert derived_values(BLANK_INSTANCE).keys() == DERIVED_FIELDS
    assert DERIVED_FIELDS.isdisjoint(DERIVED_FROM)

import copy
import pickle
from datetime import UTC, datetime
from typing import Any, ClassVar

import pytest

from fleetlight.notifications.errors import PayloadError, UnsupportedVersionError
from fleetlight.notifications.payloads.fleetlight import CellHeartbeatPayload
from fleetlight.notifications.payloads.instance import InstanceUpdatePayload
from fleetlight.notifications.payloads.parts import ExceptionPayload, FlavorPayload
from fleetlight.notifications.payloads.request_spec import DestinationPayload
from fleetlight.notifications.payloads.resources import ServerGroupPayload, ServiceStatusPayload
from fleetlight.notifications.payloads.selection import NUMATopologyLimits
from fleetlight.notifications.versioned import VersionedPayload, parse_version, required_fields
from tests.contract.payload_samples import CELL_UUID, instance_payload


def _wrapped(name: str, version: str, /, **data: Any) -> dict[str, Any]:
    return {
        "nova_object.name": name,
        "nova_object.namespace": "nova",
        "nova_object.version": version,
        "nova_object.data": data,
    }


def _fault(version: str = "1.1", **changes: Any) -> dict[str, Any]:
    data = {
        "module_name": "nova.compute.manager",
        "function_name": "_reboot",
        "exception": "Boom",
        "exception_message": "it went boom",
        "traceback": "Traceback",
    }
    return _wrapped("ExceptionPayload", version, **data | changes)


def test_versions_compare_as_numbers() -> None:
    assert parse_version("1.10") > parse_version("1.9")


@pytest.mark.parametrize("text", ["1", "1.", "a.b", "1.0.0", "-1.0", ""])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="MAJOR"):
        parse_version(text)


def test_unknown_fields_of_a_newer_minor_are_kept_with_the_version() -> None:
    wrapped = _fault("1.17", thread_id=7)
    payload = ExceptionPayload.unwrap(wrapped)
    assert payload.sent_version == "1.17"
    assert payload.unknown_fields == {"thread_id": 7}
    assert payload.wrap() == wrapped


def test_nested_objects_keep_their_own_versions_and_unknown_fields() -> None:
    wrapped = instance_payload().wrap()
    wrapped["nova_object.data"]["flavor"]["nova_object.version"] = "1.9"
    wrapped["nova_object.data"]["flavor"]["nova_object.data"]["gpus"] = 2
    payload = type(instance_payload()).unwrap(copy.deepcopy(wrapped))
    assert payload.flavor is not None
    assert payload.flavor.unknown_fields == {"gpus": 2}
    assert payload.wrap() == wrapped


def test_copies_and_pickles_keep_the_version_that_was_sent() -> None:
    payload = ExceptionPayload.unwrap(_fault("1.17"))
    assert copy.deepcopy(payload).sent_version == "1.17"
    assert pickle.loads(pickle.dumps(payload)).sent_version == "1.17"  # noqa: S301  # our own bytes


def test_newer_major_is_refused_and_both_versions_are_named() -> None:
    with pytest.raises(UnsupportedVersionError, match=r"ExceptionPayload 2\.0 .* 1\.1") as refused:
        ExceptionPayload.unwrap(_fault("2.0"))
    assert (refused.value.version, refused.value.supported) == ("2.0", "1.1")


def test_newer_major_of_a_nested_object_is_refused_by_its_own_name() -> None:
    wrapped = instance_payload().wrap()
    wrapped["nova_object.data"]["flavor"]["nova_object.version"] = "2.0"
    with pytest.raises(UnsupportedVersionError, match="FlavorPayload"):
        type(instance_payload()).unwrap(wrapped)


def test_older_sender_may_lack_fields_that_came_later() -> None:
    wrapped = _fault("1.0")
    del wrapped["nova_object.data"]["traceback"]
    assert ExceptionPayload.unwrap(wrapped).wrap() == wrapped


def test_sender_of_a_version_must_send_the_fields_of_that_version() -> None:
    wrapped = _fault("1.1")
    del wrapped["nova_object.data"]["traceback"]
    with pytest.raises(PayloadError, match="traceback: is missing"):
        ExceptionPayload.unwrap(wrapped)


def test_older_major_that_only_lost_a_field_is_read() -> None:
    assert "shares" not in required_fields(InstanceUpdatePayload, "1.9")
    assert "locked_reason" in required_fields(InstanceUpdatePayload, "1.9")
    assert "locked_reason" not in required_fields(InstanceUpdatePayload, "1.8")


def test_absent_stays_absent_and_null_stays_null() -> None:
    wrapped = _wrapped("DestinationPayload", "1.0", node=None)
    payload = DestinationPayload.unwrap(wrapped)
    assert payload.model_fields_set == {"node"}
    assert payload.wrap() == wrapped


def test_field_that_may_be_unset_is_not_required() -> None:
    wrapped = _wrapped("NUMATopologyLimits", "1.1", cpu_allocation_ratio=1.0, ram_allocation_ratio=1.5)
    assert NUMATopologyLimits.unwrap(wrapped).network_metadata is None


@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_flavor_before_1_4_has_projects_or_not(version: str) -> None:
    """Compute services of Ocata leave them out of the flavor of an instance."""
    flavor = instance_payload().flavor.at_version(version).wrap()
    data = flavor["nova_object.data"]
    for changes in ({}, {"projects": None}, {"projects": ["demo"]}):
        sent = flavor | {"nova_object.data": data | changes}
        payload = FlavorPayload.unwrap(sent)
        assert (payload.projects, payload.wrap()) == (changes.get("projects"), sent)


def test_flavor_of_1_4_has_projects() -> None:
    flavor = instance_payload().flavor.wrap()
    del flavor["nova_object.data"]["projects"]
    with pytest.raises(PayloadError, match="projects: is missing"):
        FlavorPayload.unwrap(flavor)


def test_informational_changes_of_the_wrapper_are_ignored() -> None:
    wrapped = _fault() | {"nova_object.changes": ["exception"]}
    assert ExceptionPayload.unwrap(wrapped).wrap() == _fault()


def test_errors_name_the_path_in_wire_names_and_what_would_be_right() -> None:
    wrapped = instance_payload().wrap()
    data = wrapped["nova_object.data"]
    data["tenant_id"] = 7
    data["created_at"] = "yesterday"
    data["state"] = "flying"
    data["ip_addresses"][1]["nova_object.data"]["version"] = "4"
    with pytest.raises(PayloadError) as refused:
        type(instance_payload()).unwrap(wrapped)
    problems = {problem.where: problem.what for problem in refused.value.problems}
    assert problems["tenant_id"] == "must be text, not 7"
    assert problems["created_at"].startswith("must be a time with its zone such as")
    assert problems["state"].startswith("must be one of 'active', 'building'")
    assert problems["ip_addresses[1].version"] == "must be a whole number, not '4'"
    assert len(problems) == 4


@pytest.mark.parametrize("moment", ["2026-11-21T10:00:00", "1700000000", 1700000000, "2026-11-21"])
def test_times_need_their_zone_and_a_time_of_day(moment: object) -> None:
    wrapped = CellHeartbeatPayload(cell_uuid=CELL_UUID, sequence=1, at=datetime.now(UTC)).wrap()
    wrapped["nova_object.data"]["at"] = moment
    with pytest.raises(PayloadError, match="at: must be a time with its zone"):
        CellHeartbeatPayload.unwrap(wrapped)


@pytest.mark.parametrize("count", [2**63, -(2**63) - 1, True, 1.5, "1"])
def test_whole_numbers_have_64_bits(count: object) -> None:
    wrapped = CellHeartbeatPayload(cell_uuid=CELL_UUID, sequence=1, at=datetime.now(UTC)).wrap()
    wrapped["nova_object.data"]["sequence"] = count
    with pytest.raises(PayloadError, match="sequence: must be"):
        CellHeartbeatPayload.unwrap(wrapped)


def test_own_times_always_have_microseconds_and_novas_only_when_needed() -> None:
    full_second = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
    heartbeat = CellHeartbeatPayload(cell_uuid=CELL_UUID, sequence=1, at=full_second).wrap()
    assert heartbeat["nova_object.data"]["at"] == "2026-11-21T10:00:00.000000Z"
    service = ServiceStatusPayload(
        host="host7",
        binary="nova-compute",
        topic="compute",
        report_count=1,
        disabled=False,
        disabled_reason=None,
        availability_zone=None,
        last_seen_up=full_second,
        forced_down=False,
        version=66,
        uuid=CELL_UUID,
    ).wrap()
    assert service["nova_object.data"]["last_seen_up"] == "2026-11-21T10:00:00Z"


def test_attributes_have_record_names_and_the_wire_has_novas() -> None:
    payload = instance_payload()
    data = payload.wrap()["nova_object.data"]
    assert data["tenant_id"] == payload.project_id
    assert data["state"] == payload.vm_state
    assert data["host_name"] == payload.hostname
    assert data["image_uuid"] == payload.image_ref
    assert data["server_fault"] is None
    assert not {"project_id", "vm_state", "hostname", "image_ref", "fault"} & data.keys()


def test_attribute_names_on_the_wire_are_not_accepted() -> None:
    wrapped = instance_payload().wrap()
    data = wrapped["nova_object.data"]
    data["project_id"] = data.pop("tenant_id")
    with pytest.raises(PayloadError, match="tenant_id: is missing"):
        type(instance_payload()).unwrap(wrapped)


def test_creation_with_a_field_that_does_not_exist_fails_by_name() -> None:
    with pytest.raises(PayloadError) as refused:
        instance_payload(vcpus=3)
    assert refused.value.field == "vcpus"


def test_creation_without_a_field_fails_by_name() -> None:
    with pytest.raises(PayloadError, match="at: is missing"):
        CellHeartbeatPayload(cell_uuid=CELL_UUID, sequence=1)  # type: ignore[call-arg]  # that is the point


@pytest.mark.parametrize(
    ("flavor", "expected"),
    [
        ({"vcpus": 1}, "flavor: the wrapper of FlavorPayload lacks nova_object.name"),
        ("m1.small", "flavor: an object wrapped as FlavorPayload is needed"),
        (_fault(), "flavor: nova FlavorPayload is needed, not nova ExceptionPayload"),
        (_wrapped("FlavorPayload", "one"), "flavor: nova_object.version 'one' is not a version"),
        (_wrapped("FlavorPayload", "1.4") | {"nova_object.data": []}, "flavor: must be an object"),
        (_wrapped("FlavorPayload", "1.4") | {"nova_object.version": 1.4}, "flavor: nova_object.version must be text"),
    ],
)
def test_nested_objects_need_the_right_wrapper(flavor: object, expected: str) -> None:
    wrapped = instance_payload().wrap()
    wrapped["nova_object.data"]["flavor"] = flavor
    with pytest.raises(PayloadError) as refused:
        type(instance_payload()).unwrap(wrapped)
    assert str(refused.value.problems[0]).startswith(expected)


def test_mutable_defaults_are_not_shared() -> None:
    data = {"uuid": CELL_UUID, "name": None, "user_id": None, "project_id": None, "policies": None, "members": None}
    first = ServerGroupPayload.unwrap(_wrapped("ServerGroupPayload", "1.0", **data, hosts=None))
    second = ServerGroupPayload.unwrap(_wrapped("ServerGroupPayload", "1.0", **data, hosts=None))
    assert first.rules is not second.rules


def test_history_must_end_with_the_version() -> None:
    with pytest.raises(ValueError, match=r"must end with 1\.1"):

        class _Stale(VersionedPayload):
            """Something.

            1.0  first version
            """

            VERSION: ClassVar[str] = "1.1"
            name: str


def test_history_names_only_fields_that_exist() -> None:
    with pytest.raises(ValueError, match="adds 'nickname', which is no field"):

        class _Wrong(VersionedPayload):
            """Something.

            1.0  first version
            1.1  + nickname
            """

            VERSION: ClassVar[str] = "1.1"
            name: str


def test_flavor_history_is_read_from_its_docstring() -> None:
    assert required_fields(FlavorPayload, "1.0") == {"flavorid", "memory_mb", "vcpus", "root_gb", "ephemeral_gb"}
    assert FlavorPayload.ADDED_IN["description"] == (1, 4)

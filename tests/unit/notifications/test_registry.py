import pytest

from fleetlight.notifications.errors import EnvelopeError, PayloadError, UnknownPayloadError, UnsupportedVersionError
from fleetlight.notifications.payloads.fleetlight import FullInstancePayload
from fleetlight.notifications.payloads.instance import InstancePayload as NovaInstancePayload
from fleetlight.notifications.payloads.instance import InstanceUpdatePayload
from fleetlight.notifications.registry import REGISTRY, Registry, json_schema, parse_payload
from tests.contract.payload_samples import instance_payload


def test_payload_is_found_by_namespace_and_name() -> None:
    assert type(parse_payload(instance_payload().wrap())) is FullInstancePayload
    assert REGISTRY.find("nova", "InstancePayload", "1.0") is NovaInstancePayload
    assert REGISTRY.find("nova", "InstancePayload", "1.99") is NovaInstancePayload


def test_every_major_that_a_class_reads_is_registered() -> None:
    assert REGISTRY.find("nova", "InstanceUpdatePayload", "1.9") is InstanceUpdatePayload
    assert REGISTRY.find("nova", "InstanceUpdatePayload", "2.1") is InstanceUpdatePayload


@pytest.mark.parametrize("version", ["3.0", "0.9"])
def test_other_majors_are_refused_by_name(version: str) -> None:
    with pytest.raises(UnsupportedVersionError, match=rf"nova InstanceUpdatePayload {version} .* 2\.1"):
        REGISTRY.find("nova", "InstanceUpdatePayload", version)


def test_older_major_that_is_not_registered_is_refused() -> None:
    with pytest.raises(UnsupportedVersionError, match=r"CellMappingPayload 1\.0"):
        REGISTRY.find("nova", "CellMappingPayload", "1.0")


def test_unknown_payload_is_refused_with_what_is_known() -> None:
    wrapped = instance_payload().wrap() | {"nova_object.name": "InstancesPayload"}
    with pytest.raises(UnknownPayloadError, match=r"'InstancesPayload'.*did you mean .*InstancePayload.*\?"):
        parse_payload(wrapped)


def test_unknown_namespace_is_refused() -> None:
    with pytest.raises(UnknownPayloadError, match="nothing is known there"):
        parse_payload(instance_payload().wrap() | {"nova_object.namespace": "cinder"})


@pytest.mark.parametrize("version", ["", "new", "1", "1.x"])
def test_broken_version_is_refused(version: str) -> None:
    with pytest.raises(PayloadError, match=r"nova_object\.version.* (must be|is not)"):
        parse_payload(instance_payload().wrap() | {"nova_object.version": version})


@pytest.mark.parametrize("change", [{"nova_object.name": None}, {"nova_object.version": 1}])
def test_wrapper_with_other_types_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(EnvelopeError, match="must be text"):
        parse_payload(instance_payload().wrap() | change)


def test_payload_that_is_not_wrapped_is_refused() -> None:
    with pytest.raises(EnvelopeError, match=r"nova_object\.namespace is missing"):
        parse_payload({"uuid": "x"})


def test_same_major_cannot_be_registered_twice() -> None:
    with pytest.raises(ValueError, match=r"1\.x is registered already"):
        Registry([FullInstancePayload, FullInstancePayload])


def test_schema_says_what_is_required_and_how_it_is_wrapped() -> None:
    schema = json_schema(NovaInstancePayload)
    assert schema["properties"]["nova_object.version"]["pattern"] == r"^1\.[0-9]+$"
    data = schema["properties"]["nova_object.data"]
    assert set(data["required"]) == set(data["properties"])
    assert data["properties"]["created_at"]["anyOf"][0] == {"type": "string", "format": "date-time"}
    assert "nova_object.data" in schema["$defs"]["FlavorPayload"]["properties"]

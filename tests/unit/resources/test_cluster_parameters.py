"""Parameters of a cluster, and what they fill in."""

from fleetlight.resources.query_fields.cluster_parameters import (
    CLUSTER_DEFAULTS,
    HYPERVISOR_DEFAULTS,
    HYPERVISOR_GLOBALS,
    filled_cluster,
    hypervisor_parameters,
    system_parameters,
)
from fleetlight.resources.query_fields.parameters import HYPERVISOR_PARAMETERS


def test_nothing_set_is_the_defaults() -> None:
    assert filled_cluster({}) == CLUSTER_DEFAULTS


def test_default_of_a_hypervisor_is_of_a_known_parameter() -> None:
    known = {*HYPERVISOR_PARAMETERS, *HYPERVISOR_GLOBALS}
    assert {name for defaults in HYPERVISOR_DEFAULTS.values() for name in defaults} <= known


def test_operating_system_comes_before_the_hypervisor_and_the_instance_before_both() -> None:
    cluster = filled_cluster(
        {
            "hvparams": {"kvm": {"acpi": False, "vhost_net": True, "cpu_type": "a"}},
            "os_hvp": {"debian+small": {"kvm": {"vhost_net": False, "cpu_type": "b"}}},
        }
    )
    found = hypervisor_parameters(cluster, "kvm", "debian+small", {"cpu_type": "c"})
    assert (found["acpi"], found["vhost_net"], found["cpu_type"]) == (False, False, "c")
    assert not HYPERVISOR_GLOBALS & set(found)
    assert hypervisor_parameters(cluster, "fake", "debian", {}) == {}


def test_variant_comes_before_the_operating_system() -> None:
    cluster = filled_cluster({"osparams": {"debian": {"a": "1", "b": "1"}, "debian+small": {"b": "2", "c": "2"}}})
    assert system_parameters(cluster, "debian+small", {"c": "3"}) == {"a": "1", "b": "2", "c": "3"}
    assert system_parameters(cluster, "debian", {}) == {"a": "1", "b": "1"}
    assert system_parameters(cluster, None, {}) == {}

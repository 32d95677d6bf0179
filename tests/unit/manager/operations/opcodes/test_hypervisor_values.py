"""Values of hypervisor parameters, as `check_hypervisor_values` sees them."""

from typing import Any

import pytest

from fleetlight.manager.operations.jobs.errors import PrerequisiteError
from fleetlight.manager.operations.opcodes.hypervisor_values import CHECKS, check_hypervisor_values
from fleetlight.manager.operations.opcodes.parameter_values import hypervisor_parameters
from fleetlight.resources.query_fields.cluster_parameters import HYPERVISOR_DEFAULTS


def check(hypervisor: str, **changed: Any) -> None:
    check_hypervisor_values(hypervisor, {**HYPERVISOR_DEFAULTS[hypervisor], **changed})


@pytest.mark.parametrize("hypervisor", HYPERVISOR_DEFAULTS)
def test_each_hypervisor_may_have_its_defaults_and_each_check_is_of_one_of_its_parameters(hypervisor: str) -> None:
    check(hypervisor)
    assert set(CHECKS[hypervisor]) <= set(HYPERVISOR_DEFAULTS[hypervisor])


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("kvm", {"disk_aio": "nonsense"}, "Invalid value 'nonsense' for parameter 'disk_aio': it has to be one of native"),
    ("kvm", {"kvm_path": ""}, "Invalid value '' for parameter 'kvm_path': it has to be an absolute path"),
    ("kvm", {"migration_port": 65535}, "for parameter 'migration_port': it has to be a number from 1 to 65534"),
    ("kvm", {"cpu_mask": "2-1"}, "value '2-1' for parameter 'cpu_mask': it has to be for each processor a mask"),
    ("kvm", {"cpu_cores": -1}, "value -1 for parameter 'cpu_cores': it has to be a number that is not negative"),
    ("kvm", {"initrd_path": "/a/../b"}, "for parameter 'initrd_path': it has to be an absolute path"),
    ("kvm", {"serial_speed": 7}, "Invalid value 7 for parameter 'serial_speed': it has to be one of 75, 110"),
    ("kvm", {"boot_order": "cdrom"}, "'cdrom_image_path' has to be set while parameter 'boot_order' has the value"),
    ("kvm", {"root_path": ""}, "'root_path' has to be set while parameter 'kernel_path' has the value"),
    ("kvm", {"security_model": "user"}, "A 'security_domain' goes with the model 'user'"),
    (
        "kvm",
        {"security_domain": "kvm"},
        "'none', parameter 'security_domain' has the value 'kvm'",
    ),
    ("kvm", {"vnc_x509_verify": True}, "'vnc_x509_path' has to be set"),
    ("kvm", {"spice_use_tls": True}, "'spice_bind' has to be set while parameter 'spice_use_tls' has the value True"),
    ("kvm", {"spice_bind": "::1", "spice_ip_version": 4}, "'spice_ip_version' has to be 6 or 0"),
    ("kvm", {"disk_aio": "native"}, "'disk_cache' has to be 'none', not 'default', while parameter 'disk_aio'"),
    ("xen-hvm", {"boot_order": "cx"}, "value 'cx' for parameter 'boot_order': it has to be some of the letters"),
    ("xen-hvm", {"vnc_bind_address": "::1"}, "'vnc_bind_address': it has to be an IPv4 address"),
    ("xen-pvm", {"cpu_weight": 0}, "'cpu_weight': it has to be a number from 1 to 65535"),
    ("fake", {"migration_mode": "dead"}, "it has to be one of live, non-live"),
    ("chroot", {"init_script": "run"}, "it has to be an absolute path"),
    ("lxc", {"cpu_mask": "all"}, "it has to be a mask of processors"),
]


@pytest.mark.parametrize(("hypervisor", "changed", "says"), WRONG)
def test_error_names_the_parameter_what_was_given_and_what_would_be_right(
    hypervisor: str, changed: dict[str, Any], says: str
) -> None:
    with pytest.raises(PrerequisiteError) as raised:
        check(hypervisor, **changed)
    assert says in str(raised.value)


def test_value_of_another_type_is_refused_with_the_type_that_would_be_right() -> None:
    for name, given, says in (("acpi", "maybe", "true or false"), ("cpu_cores", "x", "a whole number")):
        with pytest.raises(PrerequisiteError, match=f"value '{given}' for parameter '{name}'.* has to be {says}"):
            hypervisor_parameters("kvm", {}, {name: given})
    assert hypervisor_parameters("kvm", {}, {"kernel_path": False}) == {"kernel_path": ""}

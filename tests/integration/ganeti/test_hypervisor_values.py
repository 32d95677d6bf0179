"""What Ganeti's own classes of hypervisors say of values of their parameters, and what we say of the same ones."""

import json
from collections.abc import Mapping
from typing import Any

from fleetlight.manager.operations.jobs.errors import PrerequisiteError
from fleetlight.manager.operations.opcodes.hypervisor_values import check_hypervisor_values
from fleetlight.resources.query_fields.cluster_parameters import HYPERVISOR_DEFAULTS
from tests.support.servers.real_cluster import RealCluster

# Reads {type: [value]} and {parameter: [value]}; prints each change of defaults that was tried, and whether it is
# taken: all parameters alone with all values of their type, and the words that constants list; KVM's in twos.
_PROGRAM = """
import itertools, json, sys
sys.path.insert(0, "/usr/share/ganeti/default")
from ganeti import constants, errors, hypervisor

of_types, together = map(json.loads, sys.argv[1:])
of_types["str"] += sorted({word for known in vars(constants).values() if isinstance(known, frozenset)
                           for word in known if isinstance(word, str)})
of_types["int"] += constants.VALID_SERIAL_SPEEDS
changes = [(name, {each: value}) for name, defaults in constants.HVC_DEFAULTS.items()
           for each in defaults for value in of_types[type(defaults[each]).__name__]]
few = [{name: value} for name in together for value in together[name]]
changes += [("kvm", {**one, **other}) for one, other in itertools.combinations(few, 2)]

def is_taken(name, changed):
    try:
        hypervisor.GetHypervisorClass(name).CheckParameterSyntax({**constants.HVC_DEFAULTS[name], **changed})
    except errors.HypervisorError:
        return False
    return True

print(json.dumps([(*change, is_taken(*change)) for change in changes]))
"""
_TEXTS = """
    /a /a/../b //a a/b http://a ftps://a httpx://a 1 0-2,5 5-2 1-2-3 1:all 1::2 all,1 1.2.3.4 01.2.3.4 ::1 acdn cc ax
    eth0 default nonsense
"""
_NUMBERS = [-1, 0, 1, 4, 5, 6, 8, 9, 32, 33, 65534, 65535, 65536, 9600]
_TOGETHER: Mapping[str, list[Any]] = {
    "boot_order": ["cdrom", "disk"],
    "cdrom_image_path": ["", "/a"],
    "kernel_path": ["", "/a"],
    "root_path": ["", "/a"],
    "security_model": ["none", "pool", "user"],
    "security_domain": ["", "a"],
    "serial_console": [True, False],
    "serial_speed": [0, 7, 9600],
    "vnc_x509_verify": [True, False],
    "vnc_x509_path": ["", "/a"],
    "spice_bind": ["", "1.2.3.4", "::1", "eth0"],
    "spice_ip_version": [0, 4, 6],
    "spice_password_file": ["/a"],
    "spice_image_compression": ["lz"],
    "spice_jpeg_wan_compression": ["auto"],
    "spice_zlib_glz_wan_compression": ["auto"],
    "spice_streaming_video": ["all"],
    "spice_use_tls": [True],
    "disk_aio": ["native", "threads"],
    "disk_cache": ["default", "none", "writeback"],
}


def is_accepted(hypervisor: str, changed: Mapping[str, Any]) -> bool:
    try:
        check_hypervisor_values(hypervisor, {**HYPERVISOR_DEFAULTS[hypervisor], **changed})
    except PrerequisiteError:
        return False
    return True


def judged(cluster: RealCluster, *given: Mapping[str, list[Any]]) -> list[tuple[str, dict[str, Any], bool]]:
    answer = cluster.run("python3", "-c", _PROGRAM, *map(json.dumps, given))
    assert answer.returncode == 0, answer.stderr
    return [(name, changed, is_taken) for name, changed, is_taken in json.loads(answer.stdout)]


def test_values_are_accepted_alone_and_together_if_and_only_if_ganeti_accepts_them(ganeti_cluster: RealCluster) -> None:
    theirs = judged(ganeti_cluster, {"str": ["", *_TEXTS.split()], "int": _NUMBERS, "bool": [True, False]}, _TOGETHER)
    tried = {(name, each, value) for name, changed, _ in theirs for each, value in changed.items()}
    assert {("kvm", "disk_aio", "nonsense"), ("kvm", "nic_type", "i82557b"), ("lxc", "num_ttys", -1)} <= tried
    assert {name for name, _, _ in tried} == set(HYPERVISOR_DEFAULTS)
    assert [each for each in theirs if is_accepted(*each[:2]) is not each[2]] == []

"""Prints what becomes of a server whose flavor has extra specs, as Nova's own code has it: a line of JSON for each.

`refused`: its API answers 400. `asks`: its scheduler asks something of the hosts for them, or looks at them. Otherwise
any host will do.
"""

import json
import sys
from itertools import combinations

from nova import config, exception, objects
from nova.compute.api import API
from nova.pci import request as pci_request
from nova.scheduler import host_manager, request_filter
from nova.scheduler.filters.compute_capabilities_filter import ComputeCapabilitiesFilter
from nova.scheduler.utils import ResourceRequest
from nova.virt import hardware

objects.register_all()
HOST = "0cc175b9-c0f1-4b6a-831c-399e26977266"
VCPUS, MEMORY_MB = 4, 4096
ALONE = {
    "hw:boot_menu": "yes",
    "hw:cpu_dedicated_mask": "0-1 ^0 0-3 0-9 x 3-1 ^x",
    "hw:cpu_max_sockets": "2 x",
    "hw:cpu_cores": "4 x",
    "hw:cpu_policy": "dedicated shared mixed odd",
    "hw:cpu_realtime": "yes no odd",
    "hw:cpu_realtime_mask": "^0 0-3 0-9 x 2-1",
    "hw:cpu_thread_policy": "prefer isolate require odd",
    "hw:emulator_threads_policy": "share isolate odd",
    "hw:ephemeral_encryption": "yes no",
    "hw:ephemeral_encryption_format": "luks",
    "hw:hide_hypervisor_id": "true",
    "hw:locked_memory": "yes no",
    "hw:maxphysaddr_bits": "42",
    "hw:maxphysaddr_mode": "emulate passthrough",
    "hw:mem_encryption": "yes no odd",
    "hw:mem_encryption_model": "amd-sev intel-tdx",
    "hw:mem_page_size": "small any large 2048 2MB 2M 2MiB odd",
    "hw:numa_cpus.0": "0-3 0-1 0-9 x",
    "hw:numa_cpus.1": "2-3 1-3",
    "hw:numa_mem.0": "4096 2048",
    "hw:numa_mem.1": "2048 1024",
    "hw:numa_nodes": "1 2 3 0 x 01",
    "hw:pci_numa_affinity_policy": "required preferred legacy socket odd",
    "hw:pmem": "A A,B",
    "hw:pmu": "yes odd",
    "hw:redirected_usb_ports": "0 5",
    "hw:serial_port_count": "2 x",
    "hw:sound_model": "sb16 es1370 pcspk ac97 ich6 ich9 usb virtio odd",
    "hw:tpm_model": "tpm-crb tpm-tis",
    "hw:tpm_secret_security": "user host deployment",
    "hw:tpm_version": "1.2 2.0",
    "hw:usb_model": "none nec-xhci qemu-xhci",
    "hw:vif_multiqueue_enabled": "yes",
    "hw:viommu_model": "intel smmuv3 virtio auto",
    "hw:virtio_packed_ring": "yes no odd",
    "hw:watchdog_action": "none pause poweroff reset disabled",
    "os:secure_boot": "required disabled optional",
    "quota:cpu_shares": "4",
    "hw_rng:allowed": "no",
    "hw_video:ram_max_mb": "4",
    "vmware:hw_version": "9",
    "ours:colour": "blue",
    "owner": "ada",
    "group_policy": "none",
    "hide_hypervisor_id": "true",
    "capabilities:hypervisor_type": "xen",
    "capabilities:cpu_info:features": "aes",
    "resources:VCPU": "2",
    "resources:PCPU": "4 3",
    "resources:VGPU": "1 0",
    "resources1:CUSTOM_GOLD": "1 0",
    "trait:CUSTOM_GOLD": "required forbidden",
    "trait:HW_CPU_HYPERTHREADING": "required forbidden",
    "trait1:CUSTOM_GOLD": "required",
    "pci_passthrough:alias": "gpu:1",
    "accel:device_profile": "gpu",
    "aggregate_instance_extra_specs:ssd": "true",
}
EMPTY = ("hw:cpu_policy", "hw:cpu_thread_policy", "hw:mem_page_size", "hw:numa_nodes", "hw:pmem", "hw:sound_model")
# Of these every two and every three are tried together.
TOGETHER = (
    "hw:cpu_policy",
    "hw:cpu_thread_policy",
    "hw:emulator_threads_policy",
    "hw:cpu_realtime",
    "hw:cpu_realtime_mask",
    "hw:cpu_dedicated_mask",
    "hw:mem_page_size",
    "hw:locked_memory",
    "hw:numa_nodes",
    "resources:VCPU",
    "resources:PCPU",
    "trait:HW_CPU_HYPERTHREADING",
    "hw:mem_encryption",
)
NUMA = ("hw:numa_nodes", "hw:numa_cpus.0", "hw:numa_cpus.1", "hw:numa_mem.0", "hw:numa_mem.1")
# What a host has of itself, and what its statistics add for the instances that it has.
STATISTICS = ("num_instances", "num_vm_active", "num_task_None", "num_os_type_linux", "num_proj_red", "io_workload")


def flavor_with(specs: dict[str, str]) -> objects.Flavor:
    return objects.Flavor(
        name="m", flavorid="m", vcpus=VCPUS, memory_mb=MEMORY_MB, root_gb=1, ephemeral_gb=0, swap=0, extra_specs=specs
    )


def is_refused(flavor: objects.Flavor) -> bool:
    """As `API.create` asks one thing after the other, for an image without properties."""
    image = objects.ImageMeta.from_dict({})
    try:
        API._validate_flavor_image_numa_pci({}, flavor)
        hardware.get_sound_model(flavor, image)
        hardware.get_pci_numa_policy_constraint(flavor, image)
        pci_request.get_pci_requests_from_flavor(flavor)
    except (exception.Invalid, exception.FlavorImageConflict, exception.PciRequestAliasNotDefined):
        return True
    except ValueError:
        # Nova's answer is 500.
        return True
    return False


def asked(specs: dict[str, str]) -> str:
    """What placement, and the filters of hosts, are asked."""
    flavor = flavor_with(specs)
    spec = objects.RequestSpec(flavor=flavor, is_bfv=False)
    spec.image, spec.requested_resources = objects.ImageMeta.from_dict({}), []
    for each in ("accelerators", "packed_virtqueue", "ephemeral_encryption", "virtio_sound", "tpm_secret_security"):
        getattr(request_filter, f"{each}_filter")(None, spec)
    wanted = str(ResourceRequest.from_request_spec(spec)), sorted(spec.root_required)
    host = host_manager.HostState("host", "node", HOST)
    host.stats = dict.fromkeys(STATISTICS, "1")
    passes = ComputeCapabilitiesFilter().host_passes(host, spec)
    topology = hardware.numa_get_constraints(flavor, spec.image)
    cells = [] if topology is None else [(len(topology.cells), cell.pagesize) for cell in topology.cells]
    pages = {pages for _, pages in cells} - {None, hardware.MEMPAGES_SMALL, hardware.MEMPAGES_ANY}
    return repr((wanted, passes, pages))


def say(specs: dict[str, str], nothing: str) -> None:
    verdict = "refused" if is_refused(flavor_with(specs)) else "nothing"
    if verdict == "nothing":
        try:
            verdict = "nothing" if asked(specs) == nothing else "asks"
        except (exception.NovaException, ValueError):
            verdict = "asks"
    sys.stdout.write(json.dumps({"specs": specs, "verdict": verdict}) + "\n")


def choices(name: str) -> list[str]:
    return ALONE[name].split(" ")


def main() -> None:
    config.parse_args(["nova"], default_config_files=[])
    nothing = asked({})
    for name in ALONE:
        for value in choices(name):
            say({name: value}, nothing)
    for name in EMPTY:
        say({name: ""}, nothing)
    for count, names in ((2, TOGETHER), (3, TOGETHER[:8]), (2, NUMA), (5, NUMA)):
        for some in combinations(names, count):
            chosen: list[dict[str, str]] = [{}]
            for name in some:
                chosen = [{**specs, name: value} for specs in chosen for value in choices(name)]
            for specs in chosen:
                say(specs, nothing)
    for name in (*dir(host_manager.HostState("host", "node", HOST)), "stats", "service", *STATISTICS):
        sys.stdout.write(json.dumps({"specs": {name: "odd"}, "verdict": "asks"}) + "\n")


main()

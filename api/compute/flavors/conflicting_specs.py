"""Checks by which Nova's API refuses a flavor for a server: its extra specs are malformed, or contradict each other.

They are the checks of `nova.compute.api.API.create`, in their order and with Nova's messages, for an image without
properties (a test compares them). The scheduler may still find no host for a flavor that passes:
fleetlight.manager.operations.scheduling.unsupported_specs.
"""

import re
from itertools import count, takewhile

from fleetlight.api.compute.protocol.parameters import TRUE_WORDS
from fleetlight.api.http.errors import BadRequestError
from fleetlight.cells.fleet.compute.flavors import Flavor

# More processors than any flavor that places them individually.
_MOST_CPUS = 4096
_HYPERTHREADING = re.compile("trait([1-9][0-9]*)?:HW_CPU_HYPERTHREADING")
_PAGES = re.compile(r"[-+]?\d*\.?\d+([KMGTPEZYRQ]i?)?(b|bit|B)|any|large|small|\d+")
_POLICIES = {
    "cpu_policy": ("CPU policy requested from 'flavor extra specs'", ("dedicated", "shared", "mixed")),
    "cpu_thread_policy": ("CPU thread policy requested from 'flavor extra specs'", ("prefer", "isolate", "require")),
    "emulator_threads_policy": ("CPU emulator threads option requested", ("isolate", "share")),
    "sound_model": ("Sound device model", ("sb16", "es1370", "pcspk", "ac97", "ich6", "ich9", "usb", "virtio")),
    "pci_numa_affinity_policy": ("PCI NUMA affinity configured", ("required", "preferred", "legacy", "socket")),
}
_NUMBERS = (
    "serial_port_count",
    *(f"cpu_{limit}{part}" for limit in ("max_", "") for part in ("sockets", "cores", "threads")),
)


def check_flavor_of_server(flavor: Flavor) -> None:
    """Raise BadRequestError for a flavor that no server can have."""
    if flavor.extra_specs:
        _Check(flavor).all()


class _Check:
    """The checks of one flavor. hw: its non-empty extra specs of the namespace `hw`, by the rest of the name."""

    def __init__(self, flavor: Flavor) -> None:
        self._flavor = flavor
        self._specs = flavor.extra_specs
        self._hw = {name[3:]: value for name, value in flavor.extra_specs.items() if value and name.startswith("hw:")}
        self._cpus = set(range(min(flavor.vcpus, _MOST_CPUS)))

    def all(self) -> None:
        if self._is_on("mem_encryption"):
            raise BadRequestError(
                f"Memory encryption is requested by hw:mem_encryption extra spec in {self._flavor.name} flavor but the "
                "image metadata doesn't have the 'hw_firmware_type' property set to 'uefi'"
            )
        for name in _NUMBERS:
            _integer(name, self._hw.get(name, "0"))
        for name, (said, known) in _POLICIES.items():
            if (policy := self._hw.get(name, known[0])) not in known:
                raise BadRequestError(f"{said} is invalid, given: '{policy}', available: '{known}'.")
        self._check_processors()
        self._check_memory()
        if alias := self._specs.get("pci_passthrough:alias"):
            raise BadRequestError(f"PCI alias {alias.partition(':')[0].strip()} is not defined")

    def _check_processors(self) -> None:
        policy, emulator = self._hw.get("cpu_policy"), self._hw.get("emulator_threads_policy")
        real_time, dedicated = self._real_time_cpus(emulator), self._dedicated_cpus()
        vcpus, pcpus = self._requested("VCPU"), self._requested("PCPU")
        if (policy and (vcpus or pcpus)) or (vcpus and pcpus):
            raise BadRequestError(
                "It is not possible to use more than one of the 'resources:VCPU', 'resources:PCPU' and 'hw:cpu_policy' "
                "extra specs; use one or the other"
            )
        if pcpus and pcpus != self._flavor.vcpus + (emulator == "isolate"):
            raise BadRequestError(
                "There is a mismatch between the number of PCPUs requested via 'resources:PCPU' and the flavor; you "
                "must allocate exactly flavor.vcpus PCPUs, and one more for 'hw:emulator_threads_policy=isolate'"
            )
        policy = "dedicated" if pcpus else "shared" if vcpus else policy
        trait = next((value for name, value in self._specs.items() if _HYPERTHREADING.match(name)), None)
        if trait and self._hw.get("cpu_thread_policy"):
            raise BadRequestError(
                "It is not possible to use the 'trait:HW_CPU_HYPERTHREADING' extra spec in combination with the "
                "'hw:cpu_thread_policy' extra spec; use one or the other"
            )
        if policy in (None, "shared"):
            if trait in ("required", "forbidden") or self._hw.get("cpu_thread_policy"):
                raise BadRequestError("Cannot set cpu thread pinning policy in a non dedicated cpu pinning policy")
            if emulator == "isolate":
                raise BadRequestError("An isolated CPU emulator threads option requires a dedicated CPU policy option.")
            if real_time and not dedicated:
                raise BadRequestError("Cannot set realtime policy in a non dedicated cpu pinning policy")
        if dedicated and policy != "mixed":
            raise BadRequestError("Cannot specify 'hw:cpu_dedicated_mask' without the 'mixed' policy.")
        if policy == "mixed" and bool(real_time) == bool(dedicated):
            raise BadRequestError(
                "Dedicated CPU set can be specified from either 'hw:cpu_dedicated_mask' or 'hw:cpu_realtime_mask' when "
                "using 'mixed' CPU policy. 'hw:cpu_dedicated_mask' and 'hw:cpu_realtime_mask' can not be specified at "
                "the same time, or be specified with none of them."
            )
        self._check_nodes(has_nodes=bool(pcpus) or policy in ("dedicated", "mixed"))

    def _check_memory(self) -> None:
        pages = self._hw.get("mem_page_size")
        if pages and not (_PAGES.fullmatch(pages) or pages.isdigit()):
            raise BadRequestError(f"Invalid memory page size '{pages}'")
        if self._is_on("locked_memory") and not pages:
            raise BadRequestError("locked_memory value in image or flavor is forbidden when mem_page_size is not set.")

    def _check_nodes(self, *, has_nodes: bool) -> None:
        """Check the NUMA nodes. has_nodes: specs of nodes count without `numa_nodes`, since processors are placed."""
        asked = self._hw.get("numa_nodes", "1")
        if not re.fullmatch("[1-9][0-9]*", asked):
            raise BadRequestError(f"The property 'numa_nodes' cannot be '{asked}'. It must be a number greater than 0")
        if not (has_nodes or any(self._hw.get(name) for name in ("numa_nodes", "mem_page_size", "pmem"))):
            return
        nodes, vcpus, memory = int(asked), self._flavor.vcpus, self._flavor.memory_mb
        cpus = [self._parsed(text) for text in self._of_nodes("numa_cpus")]
        memories = [_integer("numa_mem", text) for text in self._of_nodes("numa_mem")]
        if not cpus and not memories:
            if vcpus % nodes or memory % nodes:
                raise BadRequestError(
                    "Instance CPUs and/or memory cannot be evenly distributed across instance NUMA nodes. Explicit "
                    "assignment of CPUs and memory to nodes is required"
                )
            return
        if len(cpus) != nodes or len(memories) != nodes:
            raise BadRequestError("CPU and memory allocation must be provided for all NUMA nodes")
        given = [cpu for node in cpus for cpu in sorted(node)]
        if outside := set(given) - self._cpus:
            raise BadRequestError(f"CPU number {min(outside)} is larger than max {vcpus - 1}")
        if len(given) != len(set(given)):
            raise BadRequestError(f"CPU number {max(given, key=given.count)} is assigned to two nodes")
        if missing := self._cpus - set(given):
            raise BadRequestError(f"CPU number {missing} is not assigned to any node")
        if sum(memories) != memory:
            raise BadRequestError(f"{sum(memories)} MB of memory assigned, but expected {memory} MB")

    def _of_nodes(self, name: str) -> list[str]:
        """Return the values of `NAME.0`, `NAME.1` and so on, up to the first that is missing."""
        keys = (f"{name}.{node}" for node in count())
        return [self._hw[key] for key in takewhile(self._hw.__contains__, keys)]

    def _real_time_cpus(self, emulator: str | None) -> set[int]:
        if not self._is_on("cpu_realtime"):
            return set()
        found = self._masked(self._hw.get("cpu_realtime_mask", f"0-{self._flavor.vcpus - 1}"))
        if not found or (found == self._cpus and not emulator) or not found <= self._cpus:
            raise BadRequestError(
                "Use of realtime CPUs requires either one or more non-realtime CPU(s) or offloaded emulator threads."
            )
        return found

    def _dedicated_cpus(self) -> set[int]:
        mask = self._hw.get("cpu_dedicated_mask")
        if mask is None:
            return set()
        found = self._masked(mask)
        if not found or not found < self._cpus:
            raise BadRequestError(
                "Mixed instance must have at least 1 pinned vCPU and 1 unpinned vCPU. See 'hw:cpu_dedicated_mask'."
            )
        return found

    def _masked(self, mask: str) -> set[int]:
        is_of_all = mask.strip().startswith("^")
        return self._parsed(f"0-{self._flavor.vcpus - 1},{mask}" if is_of_all else mask)

    def _parsed(self, text: str) -> set[int]:
        """Parse a list of numbers such as `0-3,^2`."""
        taken: set[int] = set()
        left_out: set[int] = set()
        for rule in filter(None, map(str.strip, text.split(","))):
            first, _, last = rule.removeprefix("^").partition("-")
            start = _integer(rule, first)
            end = _integer(rule, last) if "-" in rule else start
            if not start <= end < start + _MOST_CPUS:
                raise BadRequestError(f"Invalid range expression {rule!r}")
            (left_out if rule.startswith("^") else taken).update(range(start, end + 1))
        return taken - left_out

    def _requested(self, resource: str) -> int:
        named = re.compile(f"resources([1-9][0-9]*)?:{resource}")
        amounts = [value for name, value in self._specs.items() if named.match(name)]
        return sum(int(amount) for amount in amounts if re.fullmatch(r"\s*[+-]?\d{1,20}\s*", amount))

    def _is_on(self, name: str) -> bool:
        return self._hw.get(name, "").strip().lower() in TRUE_WORDS


def _integer(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise BadRequestError(f"Invalid flavor extra spec. Error: {name} is not a number: '{text}'") from error

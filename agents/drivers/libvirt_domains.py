"""The definition of a new guest for libvirt: memory, processors and disks; the rest is libvirt's choice."""

from collections.abc import Mapping, Sequence
from xml.etree.ElementTree import Element, SubElement, tostring

HYPERVISORS: Mapping[str, str] = {"qemu": "kvm"}
"""Ganeti's names of those that libvirt calls otherwise."""
_FIRST = ord("a")
_LETTERS = 26


def domain_xml(hypervisor: str, name: str, memory: int, vcpus: int, disks: Sequence[str]) -> str:
    """The definition of a domain. memory: MiB. disks: paths of its volumes."""
    domain = Element("domain", type=hypervisor)
    SubElement(domain, "name").text = name
    SubElement(domain, "memory", unit="MiB").text = str(memory)
    SubElement(domain, "vcpu").text = str(vcpus)
    system = SubElement(domain, "os")
    SubElement(system, "type").text = "hvm"
    SubElement(system, "boot", dev="hd")
    devices = SubElement(domain, "devices")
    for index, path in enumerate(disks):
        is_block = path.startswith("/dev/")
        disk = SubElement(devices, "disk", type="block" if is_block else "file", device="disk")
        SubElement(disk, "source", {"dev" if is_block else "file": path})
        SubElement(disk, "target", dev=_device(index), bus="virtio")
    return tostring(domain, encoding="unicode")


def _device(index: int) -> str:
    """vda, … vdz, vdaa, …"""
    beyond, letter = divmod(index, _LETTERS)
    return "vd" + ("" if beyond == 0 else chr(_FIRST + beyond - 1)) + chr(_FIRST + letter)

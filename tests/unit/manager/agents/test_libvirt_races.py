"""What libvirt's driver for tests cannot be made to do: domains that go while they are looked at."""

import sys
from types import ModuleType
from typing import Any

import pytest

from fleetlight.manager.agents.drivers.libvirt import LibvirtDriver
from fleetlight.manager.agents.errors import DriverError

NO_DOMAIN, OTHER = 42, 1


class PlayedError(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(f"error {code}")
        self._code = code

    def get_error_code(self) -> int:
        return self._code


class PlayedDomain:
    """failure: the code that asking for its state fails with."""

    def __init__(self, name: str, failure: int | None = None) -> None:
        self._name = name
        self._failure = failure

    def name(self) -> str:
        return self._name

    def info(self) -> tuple[int, int, int, int, int]:
        if self._failure is not None:
            raise PlayedError(self._failure)
        return 1, 1024 * 1024, 1024 * 1024, 2, 0

    def isActive(self) -> bool:  # noqa: N802  # as libvirt has it
        return True


def driver(monkeypatch: pytest.MonkeyPatch, *domains: PlayedDomain) -> LibvirtDriver:
    """Of a host with these domains."""
    connection: Any = ModuleType("connection")
    connection.isAlive = lambda: True
    connection.getType = lambda: "QEMU"
    connection.getInfo = lambda: ("x86", 4096, 4, 2000, 1, 1, 4, 1)
    connection.getFreeMemory = lambda: 2048 * 1024 * 1024
    connection.listAllDomains = lambda: list(domains)
    module: Any = ModuleType("libvirt")
    module.libvirtError, module.VIR_ERR_NO_DOMAIN = PlayedError, NO_DOMAIN
    module.registerErrorHandler = lambda _handler, _context: None
    module.open = lambda _uri: connection
    monkeypatch.setitem(sys.modules, "libvirt", module)
    return LibvirtDriver("qemu:///system")


def test_guest_that_goes_meanwhile_costs_the_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    host = driver(monkeypatch, PlayedDomain("web"), PlayedDomain("gone", NO_DOMAIN), PlayedDomain("mail"))
    assert host.hypervisor("kvm").guests.keys() == {"web", "mail"}


def test_guest_of_which_nothing_can_be_said_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DriverError, match="libvirt: error 1"):
        driver(monkeypatch, PlayedDomain("web"), PlayedDomain("odd", OTHER)).hypervisor("kvm")

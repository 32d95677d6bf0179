"""Real hosts by libvirt, tried with the driver that libvirt has for tests: one host, one domain, one pool.

Its state ends with its process, so each test makes its calls in one.
"""

import sys
from typing import Any

import pytest

from fleetlight.manager.agents.drivers.libvirt import LibvirtDriver
from fleetlight.manager.agents.errors import AgentError
from tests.support.servers.libvirt_binding import libvirt_calls

URI = "test:///default"
HOST: Any = ("hypervisor", ["test"], {})
GUEST: Any = {"memory": 512, "vcpus": 1}
NEW: Any = {**GUEST, "disks": [200, 100], "starts": True, "is_moved": False}


def said(*calls: Any, uri: str = URI) -> list[Any]:
    return [each.get("returned", each.get("error")) for each in libvirt_calls(uri, calls)]


@pytest.mark.usefixtures("libvirt_binding")
class TestHost:
    def test_snapshot_is_what_libvirt_says(self) -> None:
        hypervisors, state, groups, boot_id = said(
            ("hypervisors", [], {}), HOST, ("volume_groups", [], {}), ("boot_id", [], {})
        )
        assert hypervisors == ["test"]
        assert state["node"].keys() == {
            "memory_total",
            "memory_free",
            "memory_dom0",
            "cpu_total",
            "cpu_nodes",
            "cpu_sockets",
            "cpu_dom0",
        }
        assert state["node"]["memory_total"] == 3072
        assert state["node"]["cpu_total"] == 16
        guest = state["guests"]["test"]
        assert (guest["memory"], guest["vcpus"], guest["state"]) == (2048, 2, 0)
        assert groups == {"default-pool": {"size": 102_400, "free": 102_400}}
        assert len(boot_id) == 36

    def test_guest_is_shut_down_and_started_and_both_once_more_do_nothing(self) -> None:
        down = ("shut_down", ["test"], {"timeout_s": 5})
        up = ("start", ["test", "test"], {"memory": 8192, "vcpus": 2})
        answers = said(down, down, HOST, up, up, HOST)
        assert [answers[place]["guests"]["test"]["state"] for place in (2, 5)] == [1, 0]
        assert answers[0] is answers[1] is answers[3] is answers[4] is None

    def test_guest_is_not_started_as_another_than_it_is_defined(self) -> None:
        down, refused = said(
            ("shut_down", ["test"], {"timeout_s": 5}), ("start", ["test", "test"], {"memory": 1024, "vcpus": 2})
        )
        assert down is None
        assert refused == ("instance 'test' is defined with 8192 MiB and 2 processors, and not with 1024 MiB and 2")

    def test_memory_changes(self) -> None:
        changed, state = said(("set_memory", ["test", 4096], {}), HOST)
        assert changed is None
        assert state["guests"]["test"]["memory"] == 4096

    def test_guest_is_made_with_its_disks_and_removed_with_them_and_both_once_more_do_nothing(self) -> None:
        make: Any = ("create", ["test", "new"], NEW)
        groups: Any = ("volume_groups", [], {})
        other: Any = ("create_volume", ["default-pool", "new.disk-of-others", 1], {})
        answers = said(make, make, HOST, groups, other, ("remove", ["new"], {}), ("remove", ["new"], {}), HOST, groups)
        assert [each for place, each in enumerate(answers) if place in {0, 1, 4, 5, 6}] == [None] * 5
        made = answers[2]["guests"]["new"]
        assert (made["memory"], made["vcpus"], made["state"]) == (512, 1, 0)
        assert answers[7]["guests"].keys() == {"test"}
        assert [answers[place]["default-pool"]["free"] for place in (3, 8)] == [102_100, 102_399]

    def test_guest_is_paused_and_goes_on_and_both_once_more_do_nothing(self) -> None:
        pause: Any = ("pause", ["test"], {})
        unpause: Any = ("unpause", ["test"], {})
        assert said(pause, pause, unpause, unpause) == [None] * 4

    def test_guest_goes_on_that_was_suspended(self) -> None:
        suspend: Any = ("suspend", ["test"], {})
        answers = said(suspend, suspend, HOST, ("start", ["test", "test"], {"memory": 8192, "vcpus": 2}), HOST)
        assert [answers[place]["guests"]["test"]["state"] for place in (2, 4)] == [1, 0]

    def test_volume_is_made_and_removed_and_both_once_more_do_nothing(self) -> None:
        make: Any = ("create_volume", ["default-pool", "d0", 400], {})
        remove: Any = ("remove_volume", ["default-pool", "d0"], {})
        groups: Any = ("volume_groups", [], {})
        answers = said(make, make, groups, remove, remove, groups)
        assert [answers[place]["default-pool"]["free"] for place in (2, 5)] == [102_000, 102_400]
        assert answers[0] is answers[1] is answers[3] is answers[4] is None

    @pytest.mark.parametrize(
        ("call", "text"),
        [
            (("reboot", ["nobody"], {}), "there is no instance 'nobody' here"),
            (("start", ["xen", "test"], {"memory": 1, "vcpus": 1}), "this host has the hypervisor test, and not 'xen'"),
            (("rebuild", ["test", "test"], {**GUEST, "starts": True}), "this host does not fill or keep disks: its"),
            (
                ("create", ["test", "new"], {**NEW, "is_moved": True}),
                "this host does not move instances: its driver is",
            ),
            (("pause", ["nobody"], {}), "there is no instance 'nobody' here"),
            (("grow_disk", ["new", 0, 9], {}), "there is no volume 'new.disk0' in default-pool"),
            (("create_volume", ["vg9", "d0", 1], {}), "this host has no storage pool 'vg9'"),
            (("send_away", ["test", "node2"], {}), "this host does not move instances: its driver is libvirt, which"),
            (("power_cycle", [], {}), "this host is not restarted under its instances: its driver is libvirt"),
        ],
    )
    def test_what_it_cannot_do_is_said(self, call: Any, text: str) -> None:
        [answer] = said(call)
        assert answer.startswith(text)

    def test_libvirt_that_is_away_is_said(self) -> None:
        [answer] = said(HOST, uri="qemu+unix:///system?socket=/nowhere")
        assert answer.startswith("libvirt: ")


def test_without_the_binding_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "libvirt", None)
    with pytest.raises(AgentError, match="needs libvirt-dev"):
        LibvirtDriver(URI)

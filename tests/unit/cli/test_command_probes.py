"""What the probes of several processes say as those of one command."""

from pathlib import Path
from typing import Any

from fleetlight.cli.processes.command_probes import CommandProbes
from fleetlight.cli.processes.sibling_processes import SiblingProcess, States
from fleetlight.indexer.stream.liveness import ALIVE, Probe


class Played(SiblingProcess):
    """A process that says this of itself."""

    def __init__(self, name: str, *, healthz: Probe = ALIVE, readyz: Probe = ALIVE) -> None:
        super().__init__(name, Path("/nowhere"), 0, States(1))
        self._healthz, self._readyz = healthz, readyz
        self.orders: list[str] = []

    def healthz(self) -> Probe:
        return self._healthz

    def readyz(self) -> Probe:
        return self._readyz

    def order(self, word: str) -> None:
        self.orders.append(word)
        if not self._healthz.is_well:
            raise TimeoutError


def said(status: str, **more: Any) -> Probe:
    return Probe(status in {"ready", "degraded"}, {"status": status, **more})


def test_one_that_hangs_is_named_and_makes_the_command_ill() -> None:
    hangs = Probe(False, {"status": "stuck"})
    command_probes = CommandProbes([Played("api-1"), Played("api-2", healthz=hangs)], ["api-1", "api-2"])
    assert command_probes.healthz() == Probe(False, {"status": "stuck", "processes": {"api-1": "ok", "api-2": "stuck"}})


def test_all_alive_is_one_word() -> None:
    assert CommandProbes([Played("api-1"), Played("background")], ["api-1"]).healthz() == ALIVE


def test_lists_are_answered_as_long_as_one_process_does() -> None:
    processes = [Played("api-1", readyz=said("down")), Played("api-2", readyz=said("ready", index="ok"))]
    ready = CommandProbes(processes, ["api-1", "api-2"]).readyz()
    states = {"api-1": "down", "api-2": "ready"}
    assert ready == Probe(True, {"status": "degraded", "index": "ok", "processes": states})
    processes = [Played(name, readyz=said("unavailable", fleet="down")) for name in ("api-1", "api-2")]
    ready = CommandProbes(processes, ["api-1", "api-2"]).readyz()
    assert (ready.is_well, ready.body["status"], ready.body["fleet"]) == (False, "unavailable", "down")


def test_the_worst_of_those_that_answer_lists_speaks_and_the_others_are_named() -> None:
    processes = [
        Played("api-1", readyz=said("ready")),
        Played("api-2", readyz=said("degraded", cells={"north": "down"})),
        Played("background", readyz=said("starting")),
    ]
    body = CommandProbes(processes, ["api-1", "api-2"]).readyz().body
    assert (body["status"], body["cells"]) == ("degraded", {"north": "down"})
    assert body["processes"] == {"api-1": "ready", "api-2": "degraded", "background": "starting"}


def test_safe_connect_is_reset_in_each_process_that_lists_and_one_that_hangs_stops_no_other() -> None:
    hangs = Probe(False, {"status": "stuck"})
    processes = [Played("api-1", healthz=hangs), Played("api-2"), Played("background")]
    CommandProbes(processes, ["api-1", "api-2"]).reset_safe_connect()
    assert [each.orders for each in processes] == [["reset-safe-connect"], ["reset-safe-connect"], []]

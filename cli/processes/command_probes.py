"""Combines the probes of all processes of a command into one answer."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from fleetlight.cli.processes.sibling_processes import SiblingProcess, all_of
from fleetlight.indexer.stream.liveness import ALIVE, Probe

RESET_SAFE_CONNECT = "reset-safe-connect"
"""An order to a process that answers lists: use the index again."""
# From best to worst.
_STATUSES = ("ready", "degraded", "unavailable")


class CommandProbes:
    """The probes of a command. lists: names of the processes that answer lists, any of which can answer any list."""

    def __init__(self, processes: Sequence[SiblingProcess], lists: Collection[str]) -> None:
        self._processes = processes
        self._lists = lists

    def reset_safe_connect(self) -> None:
        """Reset safe-connect in each process that answers lists, except hanging ones."""
        all_of([each for each in self._processes if each.name in self._lists], _reset_safe_connect)

    def healthz(self) -> Probe:
        """Alive if every running process makes progress; the parent restarts those that do not run."""
        answers = all_of(self._processes, lambda process: process.healthz())
        ill = {name: probe for name, probe in answers.items() if not probe.is_well}
        if not ill:
            return ALIVE
        first = next(iter(ill.values()))
        return Probe(False, {**first.body, "processes": _states(answers)})

    def readyz(self) -> Probe:
        """Ready if at least one process can answer lists; otherwise the longest body of those that cannot."""
        answers = all_of(self._processes, lambda process: process.readyz())
        states = _states(answers)
        of_lists = [answers[name] for name in self._lists]
        well = [probe for probe in of_lists if probe.is_well]
        if not well:
            said = max((probe.body for probe in of_lists), key=len)
            return Probe(False, {**said, "status": _STATUSES[-1], "processes": states})
        # A process that is not ready is named under `processes`.
        worst = max(well, key=lambda probe: _STATUSES.index(str(probe.body["status"])))
        runs = len(well) == len(of_lists) and all(
            state not in {"down", "starting", "stuck"} for state in states.values()
        )
        status = worst.body["status"] if runs else _STATUSES[1]
        return Probe(True, {**worst.body, "status": status, "processes": states})


def _reset_safe_connect(process: SiblingProcess) -> None:
    # The probes report a hanging process, and the process that replaces it uses the index anyway.
    with suppress(OSError):
        process.order(RESET_SAFE_CONNECT)


def _states(answers: Mapping[str, Probe]) -> Mapping[str, str]:
    return {name: str(probe.body["status"]) for name, probe in answers.items()}

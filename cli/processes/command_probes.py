"""The probes of all processes of one command as one answer."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from fleetlight.cli.processes.sibling_processes import SiblingProcess, all_of
from fleetlight.indexer.stream.liveness import ALIVE, Probe

RESET_SAFE_CONNECT = "reset-safe-connect"
"""An order to a process that answers lists."""
# From good to bad.
_STATUSES = ("ready", "degraded", "unavailable")


class CommandProbes:
    """The probes of a command. lists: the names of the processes that answer lists; each can, for all of them."""

    def __init__(self, processes: Sequence[SiblingProcess], lists: Collection[str]) -> None:
        self._processes = processes
        self._lists = lists

    def reset_safe_connect(self) -> None:
        """In each process that answers lists, except those that hang."""
        all_of([each for each in self._processes if each.name in self._lists], _reset_safe_connect)

    def healthz(self) -> Probe:
        """Alive as long as every process that runs gets its work done; one that does not run is started again."""
        answers = all_of(self._processes, lambda process: process.healthz())
        ill = {name: probe for name, probe in answers.items() if not probe.is_well}
        if not ill:
            return ALIVE
        first = next(iter(ill.values()))
        return Probe(False, {**first.body, "processes": _states(answers)})

    def readyz(self) -> Probe:
        """Whether lists can be answered, by one process at least; if not, the longest body of those that cannot."""
        answers = all_of(self._processes, lambda process: process.readyz())
        states = _states(answers)
        of_lists = [answers[name] for name in self._lists]
        well = [probe for probe in of_lists if probe.is_well]
        if not well:
            said = max((probe.body for probe in of_lists), key=len)
            return Probe(False, {**said, "status": _STATUSES[-1], "processes": states})
        # One that is not well is named among the processes.
        worst = max(well, key=lambda probe: _STATUSES.index(str(probe.body["status"])))
        runs = len(well) == len(of_lists) and all(
            state not in {"down", "starting", "stuck"} for state in states.values()
        )
        status = worst.body["status"] if runs else _STATUSES[1]
        return Probe(True, {**worst.body, "status": status, "processes": states})


def _reset_safe_connect(process: SiblingProcess) -> None:
    # The probes name one that hangs, and the one that is started after it uses the index.
    with suppress(OSError):
        process.order(RESET_SAFE_CONNECT)


def _states(answers: Mapping[str, Probe]) -> Mapping[str, str]:
    return {name: str(probe.body["status"]) for name, probe in answers.items()}

"""What a run has started ends with it, also when the run is told to end, or killed."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from scripts.servers.folders import CHECKOUT
from scripts.servers.marks import MARK_VARIABLE
from tests.support.waiting import wait_until

# A process in a session of its own, as servers are, which has one below it; whose numbers are printed.
_SERVER = "import os, subprocess, sys; print(subprocess.Popen(['sleep', '600']).pid, os.getpid(), flush=True)"
_START = f"""
import subprocess, sys, time
from {{module}} import {{name}}

def work():
    child = subprocess.Popen([sys.executable, "-c", {_SERVER!r} + "; import time; time.sleep(600)"],
                             start_new_session=True)
    {{then}}

{{run}}
"""


# Ctrl-C comes while the benchmarks are imported.
_INTERRUPTED_IMPORT = """
import runpy, signal, sys

class Interruption:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "bench.listing":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interruption)
runpy.run_module("bench", run_name="__main__")
"""


_STARTS_A_SERVER_AND_ENDS = f"""
import subprocess, sys
from bench.ending import run_to_its_end

def work():
    command = [sys.executable, "-c", {_SERVER!r} + "; import time; time.sleep(600)"]
    child = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, text=True)
    print(child.stdout.readline().strip(), flush=True)
    return 0

sys.exit(run_to_its_end(work))
"""


def _script(then: str) -> str:
    return _START.format(module="bench.ending", name="run_to_its_end", then=then, run="sys.exit(run_to_its_end(work))")


def _started(script: str) -> tuple[subprocess.Popen[str], list[int]]:
    environment = {name: value for name, value in os.environ.items() if name != MARK_VARIABLE}
    run = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=CHECKOUT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert run.stdout is not None
    return run, [int(word) for word in run.stdout.readline().split()]


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def begun() -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    run, started = _started(_script("time.sleep(600)"))
    assert len(started) == 2
    yield run, started
    for pid in (run.pid, *started):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    run.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_run_that_is_ended_ends_what_it_has_started_and_says_so(
    begun: tuple[subprocess.Popen[str], list[int]], number: signal.Signals
) -> None:
    run, started = begun
    run.send_signal(number)
    _, said = run.communicate(timeout=60)
    assert run.returncode == 128 + number
    assert not any(map(_runs, started))
    assert f"{number.name}: ending what this run has started" in said
    assert f"{number.name}: nothing of this run is left running; ended python" in said
    assert "Traceback" not in said


def test_run_ends_too_where_the_signal_comes_in_a_finalizer() -> None:
    then = "weakref.finalize(set(), signal.raise_signal, signal.SIGTERM); time.sleep(600)"
    run, started = _started(f"import signal, weakref\n{_script(then)}")
    _, said = run.communicate(timeout=60)
    assert run.returncode == 128 + signal.SIGTERM
    assert not any(map(_runs, started))
    assert "Traceback" not in said


@pytest.mark.night
def test_bench_that_is_ended_before_it_has_begun_shows_no_traceback() -> None:
    run, _ = _started(_INTERRUPTED_IMPORT)
    _, said = run.communicate(timeout=60)
    assert run.returncode == 128 + signal.SIGINT
    assert "Traceback" not in said


def test_run_that_is_killed_leaves_nothing_running(begun: tuple[subprocess.Popen[str], list[int]]) -> None:
    run, started = begun
    run.kill()
    wait_until(lambda: not any(map(_runs, started)))


def test_run_that_ends_ends_what_it_has_left_running() -> None:
    run, started = _started(
        _START.format(
            module="scripts.servers.marks",
            name="marked_run",
            then="sys.stdin.readline()",
            run="with marked_run(): work()",
        )
    )
    run.communicate("go on\n", timeout=60)
    assert len(started) == 2
    assert not any(map(_runs, started))


def test_services_tell_the_command_to_end_and_wait_until_it_has_tidied_up() -> None:
    # The shell between hears of it too, and must not be waited for alone.
    begin = "import time\ntry:\n    print('begun', flush=True); time.sleep(600)\n"
    command = f"""{sys.executable} -c "{begin}finally:\n    time.sleep(0.3); print('tidied up')"; true"""
    run = subprocess.Popen(
        [sys.executable, "-m", "scripts.servers", "run", "postgresql", "--", "sh", "-c", command],
        cwd=CHECKOUT,
        env={**os.environ, "FLEETLIGHT_TEST_POSTGRESQL_URL": "postgresql://named"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert run.stdout is not None
    assert run.stdout.readline() == "begun\n"
    run.terminate()
    said, _ = run.communicate(timeout=60)
    assert said == "tidied up\n"
    assert run.returncode == 128 + signal.SIGTERM


def test_run_inside_of_another_one_ends_what_it_has_started_and_nothing_else() -> None:
    bench = f"{shlex.quote(sys.executable)} -c {shlex.quote(_STARTS_A_SERVER_AND_ENDS)}"
    outer = subprocess.run(
        ["sh", "-c", f"{bench}; {bench}; echo both have ended"],
        cwd=CHECKOUT,
        env=os.environ | {MARK_VARIABLE: "outer"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    *started, last = outer.stdout.splitlines()
    assert (outer.returncode, last) == (0, "both have ended")
    assert len(started) == 2
    assert not any(_runs(int(pid)) for pid in " ".join(started).split())


def test_run_ends_what_runs_inside_of_it_have_started() -> None:
    inner = f"subprocess.run([sys.executable, '-c', {_script('time.sleep(600)')!r}])"
    work = f"def work():\n    {inner}\nsys.exit(run_to_its_end(work))"
    run, started = _started(f"import subprocess, sys\nfrom bench.ending import run_to_its_end\n{work}")
    assert len(started) == 2
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=60)
    assert not any(map(_runs, started))

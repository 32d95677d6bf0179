import subprocess
import sys
from pathlib import Path

from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.database.leases import ExclusiveLock, open_leases

HOLDER = """
import sys
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.database.leases import ExclusiveLock, open_leases
lock = ExclusiveLock(open_leases(create_database_engine(sys.argv[1]), "a test"), "relay")
assert lock.acquire()
print("held", flush=True)
sys.stdin.read()
"""


def test_lock_has_one_holder_and_dies_with_its_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/cell.db"
    engine = create_database_engine(url)
    lock, other = (
        ExclusiveLock(open_leases(engine, "a test"), "relay"),
        ExclusiveLock(open_leases(engine, "a test"), "other"),
    )
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert not lock.acquire()
        assert other.acquire()
        holder.kill()
        holder.wait()
    assert lock.acquire()
    assert lock.acquire()
    lock.release()
    other.release()
    engine.dispose()

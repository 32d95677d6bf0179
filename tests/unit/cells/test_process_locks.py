import subprocess
import sys
from pathlib import Path

from cells.database.engines import create_database_engine
from cells.database.process_locks import exclusive_lock

HOLDER = """
import sys
from cells.database.engines import create_database_engine
from cells.database.process_locks import exclusive_lock
lock = exclusive_lock(create_database_engine(sys.argv[1]), "relay")
assert lock.acquire()
print("held", flush=True)
sys.stdin.read()
"""


def test_lock_has_one_holder_and_dies_with_its_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/cell.db"
    engine = create_database_engine(url)
    lock, other = exclusive_lock(engine, "relay"), exclusive_lock(engine, "other")
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

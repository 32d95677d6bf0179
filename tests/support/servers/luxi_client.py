"""Ganeti's own client of its local queries, unmodified, from the packages of the real cluster."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.servers.real_cluster import RealCluster

# Makes the calls that it reads, and writes what each has returned, or the error.
_PROGRAM = """
import json, sys
from ganeti import errors, luxi
asked = json.load(sys.stdin)
client = luxi.Client(address=asked["socket"])
said = []
for method, arguments in asked["calls"]:
    try:
        said.append({"returned": getattr(client, method)(*arguments)})
    except errors.GenericError as error:
        said.append({"raised": type(error).__name__, "arguments": list(error.args)})
json.dump(said, sys.stdout, default=lambda each: each.ToDict())
"""


def luxi_calls(cluster: RealCluster, socket: Path, calls: Sequence[tuple[str, Sequence[Any]]]) -> list[Any]:
    """What each call of a method of the client comes to, at a socket."""
    packages = [cluster.root / "usr/share/ganeti/3.0", cluster.root / "usr/lib/python3/dist-packages"]
    ran = subprocess.run(
        ["/usr/bin/python3", "-c", _PROGRAM],
        input=json.dumps({"socket": str(socket), "calls": calls}),
        env={"PYTHONPATH": ":".join(map(str, packages)), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    said: list[Any] = json.loads(ran.stdout)
    return said

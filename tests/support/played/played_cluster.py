"""A Ganeti cluster as its remote API shows it: what a test says that it has, over HTTP on a loopback port."""

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from typing import Any
from uuid import UUID

from tests.support.serving import QuietHandler, serving

USER, PASSWORD = "reader", "a secret"
_KEYS = {"lock": "name", "job": "id", "export": "export"}

Item = dict[str, Any]
"""By the name of a field its value, or a tuple of a status and None; a field that is missing is unset (status 3)."""


def instance(number: int, **changed: Any) -> Item:
    """An instance with two processors and one disk, that runs on a node."""
    return {
        "uuid": str(UUID(int=number + 1)),
        "name": f"web{number}.example.org",
        "pnode": "node1.example.org",
        "pnode.group": "default",
        "tags": ["blue"],
        "ctime": 1_700_000_000.25 + number,
        "mtime": 1_700_000_100.5 + number,
        "forthcoming": False,
        "serial_no": 3,
        "os": "debian+bookworm",
        "hypervisor": "kvm",
        "disk_template": "plain",
        "admin_state": "up",
        "admin_state_source": "admin",
        "disks_active": True,
        "snodes": [],
        "oper_state": True,
        "oper_ram": 2048,
        "oper_vcpus": 2,
        "status": "running",
        "hvparams": {"acpi": True, "boot_order": "disk", "cpu_cores": 0},
        "beparams": {"maxmem": 2048, "minmem": 1024, "vcpus": 2, "auto_balance": True, "spindle_use": 1},
        "disk.sizes": [10_240, 512],
        "disk.names": ["root", None],
        "nic.ips": ["192.0.2.7", None],
        "nic.macs": ["aa:00:00:00:00:01", "aa:00:00:00:00:02"],
        "nic.links": ["br0", "br1"],
        "nic.networks.names": ["net-a", None],
        **changed,
    }


@dataclass
class PlayedCluster:
    """items: by the name of a type. unknown: fields that this version of Ganeti does not have.

    fault: answers a request in the place of the cluster, if it says so by returning True.
    info: what is configured of it as a whole. questions: what was asked.
    """

    items: dict[str, list[Any]] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()
    fault: Callable[[QuietHandler], bool] | None = None
    questions: list[tuple[str, Any]] = field(default_factory=list)
    info: Mapping[str, Any] = field(default_factory=dict)
    url: str = ""

    def answer(self, item_type: str, question: Mapping[str, Any]) -> Any:
        fields, wanted = question["fields"], question["qfilter"]
        key = _KEYS.get(item_type, "uuid")
        return {
            "fields": [{"name": name, "title": name, "kind": "other", "doc": "Text"} for name in fields],
            "data": [
                [self._cell(item, name) for name in fields]
                for item in self.items.get(item_type, [])
                if wanted is None or _is_wanted(wanted, key, item[key])
            ],
        }

    def _cell(self, item: Item, name: str) -> tuple[int, Any]:
        if name in self.unknown:
            return 1, None
        value = item.get(name, (3, None))
        return value if isinstance(value, tuple) else (0, value)


def _is_wanted(expression: Any, key: str, value: Any) -> bool:
    operator, *operands = expression
    if operator == "|":
        return any(_is_wanted(operand, key, value) for operand in operands)
    name, operand = operands
    assert name == key, "the cluster is asked of what this one does not know"
    assert operator in ("==", ">")
    return bool(value == operand if operator == "==" else value > operand)


@contextmanager
def played_cluster(*instances: Item, **items: list[Item]) -> Iterator[PlayedCluster]:
    """A cluster that answers at its `url` until the block ends."""
    cluster = PlayedCluster({"instance": list(instances), **items})
    expected = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            item_type = self.path.removeprefix("/2/query/")
            self._answer(item_type, body, lambda: cluster.answer(item_type, body))

        def do_GET(self) -> None:
            assert self.path in ("/2/os?bulk=1", "/2/info")
            self._answer(self.path, None, lambda: cluster.info if self.path == "/2/info" else cluster.items["os"])

        def _answer(self, item_type: str, question: Any, make: Callable[[], Any]) -> None:
            cluster.questions.append((item_type, question))
            if cluster.fault is None or not cluster.fault(self):
                is_known = self.headers.get("Authorization") == expected
                self.answer(200 if is_known else 401, json.dumps(make() if is_known else {}).encode())

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
        cluster.url = f"http://{address}"
        yield cluster

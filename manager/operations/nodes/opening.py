"""Access of a process to agents by its settings, with one client and one cache for each cell."""

from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from threading import Lock

from prometheus_client import CollectorRegistry

from fleetlight.cells.kinds.native.agent_addresses import AgentAddress
from fleetlight.cells.model import Cell
from fleetlight.cells.settings import NodesSettings
from fleetlight.manager.agents.errors import CertificateError
from fleetlight.manager.agents.tls import TlsFiles
from fleetlight.manager.operations.nodes.cache import NodeStateCache
from fleetlight.manager.operations.nodes.client import AgentClient
from fleetlight.manager.operations.nodes.errors import NoCertificateError, NodesSettingsError
from fleetlight.manager.operations.nodes.metrics import CacheCounts
from fleetlight.manager.operations.nodes.model import AgentNode
from fleetlight.manager.operations.nodes.rpc import NodeRpc
from fleetlight.manager.operations.nodes.stores.store import NoStore, Store


class NodeRpcs:
    """Access to the agents of every cell, for any number of threads.

    counts: of the process. Raises NodesSettingsError if a server is configured and its client is not installed.
    """

    def __init__(self, settings: NodesSettings, counts: CacheCounts | None = None) -> None:
        self.counts = counts or CacheCounts()
        self.retry_s = settings.retry_s
        self._settings = settings
        self._guard = Lock()
        self._opened: dict[str, tuple[NodeRpc, AgentClient]] = {}
        if settings.cache_url is not None:
            _require_redis()

    def of(self, cell: Cell) -> NodeRpc:
        """Return the NodeRpc of `cell`, which is opened once. Raises NoCertificateError."""
        with self._guard:
            opened = self._opened.get(cell.uuid)
            if opened is None:
                client = self._client(cell)
                cache = NodeStateCache(self._store(cell), self.counts, self._settings.cache_strict)
                opened = self._opened[cell.uuid] = NodeRpc(client, cache), client
            return opened[0]

    def forget(self, cell: Cell, nodes: Collection[str]) -> None:
        """Drop the cached state of nodes (by name) whose configuration has changed. Logs a server that is away."""
        if not nodes:
            return
        with self._guard:
            opened = self._opened.get(cell.uuid)
        if opened is not None:
            opened[0].cache.forget_changed(nodes)
            return
        # This process has not called agents yet, but other processes may have cached their state.
        with closing(self._store(cell)) as store:
            NodeStateCache(store, self.counts).forget_changed(nodes)

    def close(self) -> None:
        with self._guard:
            for rpc, client in self._opened.values():
                rpc.close()
                client.close()
            self._opened.clear()

    def _client(self, cell: Cell) -> AgentClient:
        folder = self._settings.certificates_dir
        if folder is None:
            raise NoCertificateError(cell.name, "nodes.certificates_dir is not configured")
        try:
            return AgentClient(_files(folder / _one_part(cell.name), _one_part(self._settings.certificate)))
        except CertificateError as error:
            raise NoCertificateError(cell.name, str(error)) from error

    def _store(self, cell: Cell) -> Store:
        url = self._settings.cache_url
        if url is None:
            return NoStore()
        from fleetlight.manager.operations.nodes.stores.redis import RedisStore  # noqa: PLC0415 -- an extra, which may not be installed

        return RedisStore(url.get_secret_value(), cell.uuid, self._settings.cache_ttl_s)


@contextmanager
def opened_nodes(settings: NodesSettings, registry: CollectorRegistry) -> Iterator[NodeRpcs]:
    """Open the access to agents for the block. registry: of the process. Raises NodesSettingsError."""
    rpcs = NodeRpcs(settings, CacheCounts(registry))
    try:
        yield rpcs
    finally:
        rpcs.close()


def node_of(agent: AgentAddress) -> AgentNode:
    """Make the AgentNode of an agent."""
    return AgentNode(agent.node, agent.address, agent.is_offline)


def _files(folder: Path, name: str) -> TlsFiles:
    """Return the files, with the names that `fleetlight cell certs` gives them."""
    return TlsFiles(folder / f"worker-{name}.pem", folder / f"worker-{name}.key", folder / "authority.pem")


def _one_part(name: str) -> str:
    """Check that a name is a single element of a path."""
    if Path(name).name != name:
        raise CertificateError(f"'{name}' cannot be part of the name of a file")
    return name


def _require_redis() -> None:
    if find_spec("redis") is None:
        raise NodesSettingsError(
            "nodes.cache_url is configured, and the client of Redis is not installed: pip install 'fleetlight[redis]'"
        )

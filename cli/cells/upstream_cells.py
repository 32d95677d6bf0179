"""Add APIs of other software as cells. Only the places of their secrets are stored, not the secrets."""

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.errors import CellUnreachableError, UpstreamError
from fleetlight.cells.fleet.adoption import map_instances
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.ganeti.client import GanetiApi
from fleetlight.cells.kinds.nova_api.clouds import find_clouds_file
from fleetlight.cells.kinds.nova_api.upstream import Upstream
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.cells.model import Cell
from fleetlight.cells.upstream.address import UpstreamAddress
from fleetlight.cells.upstream.credentials import read_secret
from fleetlight.cli.cells.joined import Joined
from fleetlight.cli.errors import ConfigurationError

_TIMEOUT_S = 60.0
_LIKE = {
    CellKind.NOVA_API: "https://nova.example.org:8774/v2.1",
    CellKind.GANETI: "https://cluster.example.org:5080",
}
# The ways to log in, each with its options; an API uses one of them.
_WAYS = (("cloud", "clouds_file"), ("token_file",), ("username", "password_file"))


@dataclass(frozen=True, slots=True)
class UpstreamLogin:
    """The options for logging in at an API; see UpstreamAddress."""

    cloud: str | None = None
    clouds_file: Path | None = None
    token_file: Path | None = None
    username: str | None = None
    password_file: Path | None = None
    ca_certs: Path | None = None

    @property
    def is_given(self) -> bool:
        return self != UpstreamLogin()

    def completed_by(self, known: UpstreamAddress) -> "UpstreamLogin":
        """Fill in missing options from `known`. Options of another login method than this one's are dropped."""
        ways = [way for way in _WAYS if any(getattr(self, name) is not None for name in way)] or _WAYS
        names = [*(name for way in ways for name in way), "ca_certs"]
        return replace(self, **{name: getattr(known, name) for name in names if getattr(self, name) is None})


def upstream_address(kind: CellKind, url: str | None, login: UpstreamLogin, before: Cell | None = None) -> str:
    """The address of a cell's API, with where its login is stored. before: a cell that keeps what is not given.

    Raises ConfigurationError.
    """
    if before is not None:
        known = UpstreamAddress.read(before.database_url)
        url, login = url or known.url, login.completed_by(known)
    if url is None:
        raise ConfigurationError(f"--url is missing: the address of the API, like {_LIKE[kind]}")
    try:
        clouds_file = login.clouds_file
        if login.cloud is not None and clouds_file is None:
            clouds_file = find_clouds_file()
        address = UpstreamAddress(
            url,
            login.cloud,
            _absolute(clouds_file),
            _absolute(login.token_file),
            login.username,
            _absolute(login.password_file),
            _absolute(login.ca_certs),
        )
        if address.token_file is not None:
            read_secret(address.token_file)
        if kind is CellKind.GANETI:
            GanetiApi(address, timeout_s=_TIMEOUT_S).close()
        else:
            Upstream(address, timeout_s=_TIMEOUT_S).open_client().close()
    except UpstreamError as error:
        raise ConfigurationError(str(error)) from error
    return address.write()


def add_upstream_cell(
    fleet: Fleet, name: str, kind: CellKind, address: str, transport_url: str, *, before: Cell | None
) -> Joined:
    """Add the API at `address` (`upstream_address`) as a cell, even if it is down. before: the cell of that name."""
    cell = fleet.add_cell(name, kind, address, transport_url)
    try:
        with closing(open_adapter(cell, statement_timeout_s=_TIMEOUT_S)) as adapter:
            return Joined(cell, before, map_instances(adapter, fleet))
    except CellUnreachableError as error:
        return Joined(cell, before, problem=error.reason)


def _absolute(path: Path | None) -> Path | None:
    """Make a path absolute, since every process reads it, in whatever folder it was started."""
    return None if path is None else path.absolute()

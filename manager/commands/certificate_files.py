"""The files of `fleetlight cell certs`: a folder for each cell, with two files for each certificate."""

import os
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

from fleetlight.cli.errors import CommandError, ConfigurationError
from fleetlight.cli.output import print_result
from fleetlight.manager.agents.certificates import Pair, Role, ends_at, is_due, issue, new_authority
from fleetlight.manager.agents.errors import CertificateError

_AUTHORITY = "authority"
_KIND_OF_FILE = {Role.AGENT: "agent", Role.WORKER: "worker"}
Tell = Callable[[str], None]


def write_certificates(
    out: Path, cell: str, agents: Iterable[str], workers: Iterable[str], *, tell: Tell = print_result
) -> None:
    """Create missing certificates, renew those that expire soon, and leave the rest. tell: reports each action.

    Raises CommandError.
    """
    now = datetime.now(UTC)
    asked = [*((Role.AGENT, name) for name in agents), *((Role.WORKER, name) for name in workers)]
    try:
        folder = out / _file_name(cell)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        authority = _authority(folder, cell, now, tell, is_wanted=bool(asked))
        for role, name in dict.fromkeys([*_known(folder), *asked]):
            _issue(folder, authority, role, name, now, tell=tell)
    except CertificateError as error:
        raise CommandError(str(error)) from error


def _authority(folder: Path, cell: str, now: datetime, tell: Tell, *, is_wanted: bool) -> Pair:
    """The authority of the cell, created if it is missing. Raises ConfigurationError."""
    certificate, key = folder / f"{_AUTHORITY}.pem", folder / f"{_AUTHORITY}.key"
    if certificate.exists():
        if not key.exists():
            raise ConfigurationError(f"{key} is missing: what {certificate} is to issue needs it")
        return Pair(certificate.read_bytes(), key.read_bytes())
    if not is_wanted:
        raise ConfigurationError(
            f"there are no certificates in {folder} to renew: name those that are to be made with --agent and --worker"
        )
    # A key without a certificate is from an interrupted call: no process trusts it yet.
    authority = new_authority(cell, now)
    _write(key, authority.key, 0o600)
    _write(certificate, authority.certificate, 0o644)
    tell(f"{certificate}: new; agents and workers need it as what they trust")
    return authority


def _known(folder: Path) -> list[tuple[Role, str]]:
    """The roles and names that have certificates."""
    return [
        (role, path.name.removeprefix(f"{kind}-").removesuffix(".pem"))
        for role, kind in _KIND_OF_FILE.items()
        for path in sorted(folder.glob(f"{kind}-*.pem"))
    ]


def _issue(folder: Path, authority: Pair, role: Role, name: str, now: datetime, *, tell: Tell) -> None:
    base = f"{_KIND_OF_FILE[role]}-{_file_name(name)}"
    certificate, key = folder / f"{base}.pem", folder / f"{base}.key"
    is_known = certificate.exists() and key.exists()
    if is_known:
        known = Pair(certificate.read_bytes(), key.read_bytes())
        if not is_due(known, authority.certificate, now):
            tell(f"{certificate}: as it was, until {ends_at(known.certificate):%Y-%m-%d}")
            return
    pair = issue(authority, role, name, now)
    _write(key, pair.key, 0o600)
    _write(certificate, pair.certificate, 0o644)
    tell(f"{certificate}: {'renewed' if is_known else 'new'}, until {ends_at(pair.certificate):%Y-%m-%d}")


def _write(path: Path, content: bytes, mode: int) -> None:
    """Replace a file by a complete new one."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def _file_name(name: str) -> str:
    if not name or "/" in name or name.startswith("."):
        raise ConfigurationError(f"'{name}' cannot be part of the name of a file")
    return name

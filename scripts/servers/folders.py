"""Where things are kept: outside the checkout, readable by the unprivileged user when we are root."""

import hashlib
import os
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


def cache_folder() -> Path:
    """What can be fetched again, shared by all checkouts."""
    return _folder("XDG_CACHE_HOME", ".cache", "/var/cache")


def state_folder() -> Path:
    """Running servers of this checkout, and their data; FLEETLIGHT_TEST_SERVERS_DIR names another place for them."""
    if chosen := os.environ.get("FLEETLIGHT_TEST_SERVERS_DIR"):
        return Path(chosen)
    checkout = hashlib.sha256(str(CHECKOUT).encode()).hexdigest()[:12]
    return _folder("XDG_STATE_HOME", ".local/state", "/var/lib") / "servers" / checkout


def _folder(variable: str, default: str, default_of_root: str) -> Path:
    """Root's own home is closed to the user of the servers, so root uses the folders of the system."""
    base = Path(default_of_root) if os.geteuid() == 0 else Path(os.environ.get(variable) or Path.home() / default)
    folder = base / "fleetlight"
    make_folder(folder)
    return folder


def make_folder(folder: Path) -> None:
    """Make a folder and what it lies in, open to the user who runs the servers, whatever the umask."""
    for each in reversed([folder, *folder.parents]):
        if not each.exists():
            each.mkdir(exist_ok=True)
            each.chmod(0o755)

"""An API with the strategy `tokens` that listens on a loopback port, as real clients need it: `fleetlight up`."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.commands import Command
from tests.support.loopback import get
from tests.support.waiting import wait_until

_START_TIMEOUT_S = 120


@dataclass(frozen=True)
class LiveApi:
    """url: address of the application."""

    url: str
    data_dir: Path

    @property
    def auth_url(self) -> str:
        return f"{self.url}/identity"

    @property
    def clouds_file(self) -> Path:
        return self.data_dir / "clouds.yaml"


@contextmanager
def live_api(folder: Path, *arguments: str, **variables: str) -> Iterator[LiveApi]:
    """A running `fleetlight up` with `arguments` on the folder `data` in `folder`, which is ended with the block.

    variables: of its environment, besides ours.
    """
    data_dir, log = folder / "data", folder / "up.log"
    command = ("up", "--data-dir", str(data_dir), "--port", "0", *arguments)
    process = Command(*command, log=log, environment=os.environ | variables)
    try:
        wait_until(lambda: _address(process, log) is not None, timeout_s=_START_TIMEOUT_S)
        url = _address(process, log)
        assert url is not None
        wait_until(lambda: get(f"{url}/readyz").status_code == 200, timeout_s=_START_TIMEOUT_S)
        yield LiveApi(url, data_dir)
    finally:
        process.terminate()
        try:
            process.wait(timeout=60)
        finally:
            process.kill()


def _address(process: Command, log: Path) -> str | None:
    """Where it listens, once the banner says so."""
    text = log.read_text(encoding="utf-8")
    assert process.poll() is None, f"it ended by itself: {text[-3000:]}"
    _, said, rest = text.partition("The API is at ")
    return rest.split("/v2.1")[0] if said else None

"""A real OpenID provider that runs on this machine: oidc-provider-mock, which asks for no password."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from tests.support.loopback import get
from tests.support.waiting import wait_until

_START_TIMEOUT_S = 60


@contextmanager
def openid_provider(port: int, log: Path, *users: Mapping[str, Any]) -> Iterator[str]:
    """Its issuer, while it runs. users: their claims, with `sub`."""
    known = [argument for user in users for argument in ("--user-claims", json.dumps(user))]
    command = [sys.executable, "-m", "oidc_provider_mock", "--port", str(port), "--require-nonce", "true", *known]
    issuer = f"http://127.0.0.1:{port}"
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            wait_until(lambda: process.poll() is None and _answers(issuer), _START_TIMEOUT_S)
            yield issuer
        finally:
            process.terminate()


def _answers(issuer: str) -> bool:
    with suppress(httpx.TransportError):
        return get(f"{issuer}/.well-known/openid-configuration").status_code == 200
    return False

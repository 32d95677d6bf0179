"""Requests to processes on this machine, over plain HTTP."""

import ssl
from collections.abc import Mapping

import httpx

# As httpx makes one, it reads all authorities that the system trusts: 30 ms of a processor for each request.
_WITHOUT_AUTHORITIES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def get(
    url: str,
    *,
    params: Mapping[str, str | int] | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = 60,
) -> httpx.Response:
    """As `httpx.get`, for those who wait for a process, and so ask many times."""
    return httpx.get(url, params=params, headers=headers, timeout=timeout_s, verify=_WITHOUT_AUTHORITIES)

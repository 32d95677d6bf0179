"""Creates clients of a compute API, with one login, from its address."""

from pathlib import Path

from fleetlight.cells.kinds.nova_api.client import ComputeApi
from fleetlight.cells.kinds.nova_api.clouds import read_cloud
from fleetlight.cells.upstream.address import UpstreamAddress
from fleetlight.cells.upstream.credentials import Credentials, Fixed, TokenFile, read_secret


class Upstream:
    """A compute API for several threads, each with a client of its own, and one login. Raises UpstreamError.

    timeout_s: of one request.
    """

    def __init__(self, address: UpstreamAddress, *, timeout_s: float) -> None:
        self._url = address.url
        self._timeout_s = timeout_s
        self._credentials, self._ca_certs = _login(address, timeout_s)

    def open_client(self) -> ComputeApi:
        """A new client, which does not retry, since a caller waits for its answer."""
        return ComputeApi(self._url, self._credentials, timeout_s=self._timeout_s, ca_certs=self._ca_certs, attempts=1)


def _login(address: UpstreamAddress, timeout_s: float) -> tuple[Credentials, Path | None]:
    if address.cloud is not None and address.clouds_file is not None:
        cloud = read_cloud(address.clouds_file, address.cloud, timeout_s=timeout_s)
        return cloud.credentials, address.ca_certs or cloud.ca_certs
    if address.token_file is not None:
        return TokenFile(address.token_file), address.ca_certs
    if address.username is not None and address.password_file is not None:
        return Fixed.password(address.username, read_secret(address.password_file)), address.ca_certs
    return Fixed({}), address.ca_certs

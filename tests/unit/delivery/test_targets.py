"""Which addresses a deliverer connects to."""

import pytest

from fleetlight.api.settings import DeliverySettings
from fleetlight.api.subscriptions.targets import InnerAddressError, TargetRules

INNER = [
    "127.0.0.1",
    "127.8.9.1",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",  # noqa: S104  # an address to refuse
    "0.1.2.3",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "192.0.2.1",
    "198.18.0.1",
    "::1",
    "::",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fd12::1",
    "fec0::1",
    "ff02::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::10.0.0.1",
    "2002:7f00:1::",
    "2002:a00:1::",
    "2001:db8::1",
]
PUBLIC = ["8.8.8.8", "93.184.215.14", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]


@pytest.mark.parametrize("address", INNER)
def test_inner_address_is_refused(address: str) -> None:
    with pytest.raises(InnerAddressError, match="which delivery"):
        TargetRules(DeliverySettings()).check_address(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_address_is_taken(address: str) -> None:
    TargetRules(DeliverySettings()).check_address(address)


def test_operator_allows_single_networks() -> None:
    rules = TargetRules(DeliverySettings(allowed_networks=("10.1.0.0/16", "127.0.0.1", "fd12::/16")))
    for address in ("10.1.2.3", "127.0.0.1", "fd12::1", "::ffff:10.1.2.3"):
        rules.check_address(address)
    for address in ("10.2.2.3", "127.0.0.2", "fd13::1", "::1"):
        with pytest.raises(InnerAddressError):
            rules.check_address(address)

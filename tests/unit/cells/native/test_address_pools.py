"""Pools of addresses."""

import pytest

from fleetlight.cells.kinds.native.address_pools import AddressPool


def test_first_and_last_address_and_the_gateway_are_always_taken() -> None:
    pool = AddressPool.of("198.51.100.0/29", "198.51.100.6", [], ["198.51.100.1"])
    assert pool.map == "XX....XX"
    assert (pool.free_count, pool.reserved_count) == (4, 4)
    assert [str(address) for address in pool.external] == ["198.51.100.0", "198.51.100.6", "198.51.100.7"]
    assert [str(address) for address in pool.free()] == [f"198.51.100.{number}" for number in range(2, 6)]


@pytest.mark.parametrize(
    ("network", "gateway", "external", "reason"),
    [
        ("192.0.2.0/31", None, [], "prefix of 16 to 30, not 31"),
        ("192.0.2.1/28", None, [], "host bits set"),
        ("10.0.0.0/15", None, [], "prefix of 16 to 30, not 15"),
        ("192.0.2.0/28", "192.0.2.16", [], "192.0.2.16 is not in 192.0.2.0/28"),
        ("192.0.2.0/28", None, ["192.0.1.1"], "192.0.1.1 is not in 192.0.2.0/28"),
        ("fd00::/64", None, [], "fd00::"),
        ("192.0.2.0/28", "x", [], "'x'"),
    ],
)
def test_what_is_no_pool_is_refused(network: str, gateway: str | None, external: list[str], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        AddressPool.of(network, gateway, external, [])

"""The pool of IPv4 addresses of a network, and which instances or others have taken; pure."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

LARGEST_PREFIX, SMALLEST_PREFIX = 30, 16
"""A pool has between four and 65,536 addresses, as in Ganeti."""


@dataclass(frozen=True, slots=True)
class AddressPool:
    """The addresses of one network. external: in order, addresses that others than instances have: the first, the last,
    the gateway, and more. of_instances: addresses that instances have.
    """

    subnet: IPv4Network
    external: Collection[IPv4Address]
    of_instances: Collection[IPv4Address]

    @classmethod
    def of(
        cls, network: str, gateway: str | None, external: Iterable[str], of_instances: Iterable[str]
    ) -> "AddressPool":
        """Parse addresses. Raises ValueError if one is malformed, or not of the network."""
        subnet = IPv4Network(network)
        if not SMALLEST_PREFIX <= subnet.prefixlen <= LARGEST_PREFIX:
            raise ValueError(f"a network has a prefix of {SMALLEST_PREFIX} to {LARGEST_PREFIX}, not {subnet.prefixlen}")
        always = [subnet.network_address, subnet.broadcast_address]
        given = {IPv4Address(address) for address in (*external, *([gateway] if gateway else []))}
        instances = {IPv4Address(address) for address in of_instances}
        for address in sorted(given | instances):
            if address not in subnet:
                raise ValueError(f"{address} is not in {subnet}")
        return cls(subnet, sorted(given.union(always)), instances)

    @property
    def reserved_count(self) -> int:
        return len(set(self.external).union(self.of_instances))

    @property
    def free_count(self) -> int:
        return self.subnet.num_addresses - self.reserved_count

    @property
    def map(self) -> str:
        """One letter for each address in order: X if it is taken."""
        letters = ["."] * self.subnet.num_addresses
        first = int(self.subnet.network_address)
        for address in (*self.external, *self.of_instances):
            letters[int(address) - first] = "X"
        return "".join(letters)

    def free(self) -> Iterator[IPv4Address]:
        """The free addresses, in order."""
        taken = set(self.external).union(self.of_instances)
        return (address for address in self.subnet if address not in taken)

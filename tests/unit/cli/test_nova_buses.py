"""What an address of Nova's bus says to Fleetlight."""

import pytest

from fleetlight.cli.cells.nova_cells import FoundBus, bus_of


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("rabbit://nova:secret@bus4:5672/cell1", "amqp://bus4:5672/cell1"),
        ("rabbit://nova:se%2Fcret@[fe80::1]:5672//?heartbeat=1", "amqp://[fe80::1]:5672//"),
        ("rabbit://bus4/", "amqp://bus4/"),
        ("kombu://nova:secret@bus4:5671/?ssl=True", "amqps://bus4:5671/"),
        ("none:///", ""),
        (None, ""),
        ("", ""),
    ],
)
def test_bus_is_that_of_nova_without_its_account(url: str | None, address: str) -> None:
    assert bus_of(url) == FoundBus(address)


def test_of_a_cluster_the_first_broker_is_followed_and_that_is_said() -> None:
    found = bus_of("rabbit://nova:secret@one:5672,nova:secret@two:5672/v")
    assert found == FoundBus("amqp://one:5672/v", "of its 2 brokers one:5672 is followed")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("{scheme}://{username}:{password}@{hostname}:{port}//{path}?{query}", "template; give --transport-url"),
        ("kafka://nova:secret@bus4:9092/", "no RabbitMQ (kafka)"),
        ("rabbit://nova:secret@[bus4/", "cannot be read"),
    ],
)
def test_bus_that_cannot_be_followed_is_none_and_no_secret_is_told(url: str, why: str) -> None:
    found = bus_of(url)
    assert found.address == ""
    assert why in str(found.note)
    assert "secret" not in str(found.note)

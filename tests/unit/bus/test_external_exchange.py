"""What the address of a bus says of the exchange of somebody else."""

import pytest

from fleetlight.bus.external_exchange import Binding, source_of, split_address
from fleetlight.notifications.errors import BusError


def test_address_alone_means_what_nova_does_unless_told_otherwise() -> None:
    address, binding = split_address("amqp://user:pass@bus4:5672/nova")
    assert address == "amqp://user:pass@bus4:5672/nova"
    assert binding == Binding("nova", ("versioned_notifications",), durable=None)


def test_query_names_exchange_topics_and_durability() -> None:
    address, binding = split_address(
        "amqps://bus4/?exchange=nova-east&topics=versioned_notifications,audit&durable=true"
    )
    assert address == "amqps://bus4/"
    assert binding == Binding("nova-east", ("versioned_notifications", "audit"), durable=True)


def test_address_can_be_taken_from_nova_conf() -> None:
    assert split_address("rabbit://nova:secret@bus4:5672/cell1?durable=0") == (
        "amqp://nova:secret@bus4:5672/cell1",
        Binding(durable=False),
    )


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("amqp://u:secret@h//?durable=perhaps", "'durable' must be true or false, not 'perhaps'"),
        ("amqp://u:secret@h//?exchange=", "'exchange' must be a name"),
        ("amqp://u:secret@h//?topics=a,,b", "'topics' must be names with commas"),
        ("amqp://u:secret@h//?queue=q", "'queue' is not known, only exchange, topics, durable"),
        ("rabbit://u:secret@one:5672,u:secret@two:5672/v", "names one broker"),
    ],
)
def test_address_that_says_something_else_is_refused_without_its_password(url: str, said: str) -> None:
    with pytest.raises(BusError, match=said) as refused:
        split_address(url)
    assert "secret" not in str(refused.value)


def test_cells_that_get_the_same_messages_have_one_source_whoever_logs_in() -> None:
    one = source_of("amqp://ada:secret@bus4:5672/nova")
    assert one == source_of("rabbit://bob:other@bus4:5672/nova?topics=versioned_notifications&exchange=nova")
    assert one != source_of("amqp://bus4:5672/nova?exchange=other")
    assert one != source_of("amqp://bus4:5672/cell1")
    assert "secret" not in one

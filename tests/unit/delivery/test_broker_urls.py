"""What the URL of a broker says."""

import pytest

from fleetlight.api.subscriptions.brokers import BrokerAddress, broker_address, without_password


def address(**values: str | int | bool) -> BrokerAddress:
    usual: dict[str, str | int | bool] = {
        "is_encrypted": True,
        "host": "example.org",
        "port": 5671,
        "user": "ada",
        "virtual_host": "/",
        "exchange": "fleetlight.events",
    }
    return BrokerAddress(**usual | values)  # type: ignore[arg-type]  # each has the type of its field


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("amqps://ada@example.org", address()),
        ("amqps://ada@example.org/", address()),
        ("amqps://ada@example.org//", address()),
        ("amqps://ada@example.org/%2F", address()),
        ("amqp://ada@[::1]/a/b", address(is_encrypted=False, host="::1", port=5672, virtual_host="a/b")),
        ("amqps://a%40b@example.org:99/?exchange=a%2Fb+c=d", address(user="a@b", port=99, exchange="a/b+c=d")),
    ],
)
def test_url_says_where_and_as_whom(url: str, expected: BrokerAddress) -> None:
    assert broker_address(url) == expected


@pytest.mark.parametrize(
    ("url", "shown", "password"),
    [
        ("amqps://ada:se%2Fcret@example.org:99/v?exchange=x", "amqps://ada@example.org:99/v?exchange=x", "se/cret"),
        ("amqps://ada:se:c@ret@example.org//", "amqps://ada@example.org//", "se:c@ret"),
        ("AMQPS://a%40b:secret@[::1]", "amqps://a%40b@[::1]", "secret"),
    ],
)
def test_password_is_taken_out(url: str, shown: str, password: str) -> None:
    left, secret = without_password(url)
    assert (left, secret.get_secret_value()) == (shown, password)

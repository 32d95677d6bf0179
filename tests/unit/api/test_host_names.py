"""Which hosts a listener answers requests for: a page whose name was bound anew to our address is of none of them."""

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from fleetlight.api.http.host_names import ServedHosts
from fleetlight.api.settings import ApiSettings
from fleetlight.cli.settings import MonitoringSettings

LOCAL = ("127.0.0.1:8774", "127.9.9.9", "[::1]:8774", "localhost", "LOCALHOST:80", "localhost.", "a.localhost")
ADDRESSES = ("10.0.0.5", "[2001:db8::1]:9100")
FOREIGN = (
    "evil.example",
    "evil.example:8774",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "evil.example@127.0.0.1",
    "127.0.0.1/evil.example",
    "evil.example,127.0.0.1",
    "[::1].evil.example",
    "",
)


@pytest.mark.parametrize("host", [*LOCAL, *ADDRESSES, "api.example.org", "API.example.org.:443"])
def test_own_hosts_are_served(host: str) -> None:
    assert ServedHosts(frozenset({"api.example.org"})).serves([host])


@pytest.mark.parametrize("host", FOREIGN)
def test_foreign_hosts_are_refused(host: str) -> None:
    hosts = ServedHosts(frozenset({"api.example.org"}))
    assert not hosts.serves([host])
    assert not hosts.serves(["localhost", host])
    assert "api.example.org; api.hosts can name more hosts" in hosts.refusal([host], "api.hosts")


def test_request_without_a_host_is_no_browsers() -> None:
    assert ServedHosts(frozenset()).serves([])


@pytest.mark.parametrize(
    ("section", "names"),
    [
        ({}, []),
        ({"host": "::1", "auth": "tokens"}, []),
        ({"host": "localhost", "auth": "tokens"}, []),
        ({"hosts": ["API.example.org"]}, ["api.example.org"]),
        ({"hosts": ["a.org"], "trusted_proxies": ["10.0.0.1"], "host": "10.0.0.5"}, ["a.org"]),
        ({"compute_link_prefix": "https://api.example.org:8443/x"}, ["api.example.org"]),
        # A proxy has its own list of names, and passes on what it serves.
        ({"trusted_proxies": ["127.0.0.1"]}, None),
        ({"host": "10.0.0.5", "auth": "none"}, []),
        # A page that takes our address for its own has no login of ours.
        ({"host": "10.0.0.5", "auth": "tokens"}, None),
        ({"host": "api1.example.org", "auth": "keystone"}, None),
    ],
)
def test_hosts_of_the_api_follow_from_how_it_is_reached(section: Mapping[str, Any], names: list[str] | None) -> None:
    served = ApiSettings(**section).served_hosts
    assert served == ServedHosts(None if names is None else frozenset(names))


@pytest.mark.parametrize(
    ("section", "names"),
    [({}, []), ({"host": "10.0.0.5"}, None), ({"host": "10.0.0.5", "hosts": ["indexer"]}, ["indexer"])],
)
def test_hosts_of_the_monitoring(section: Mapping[str, Any], names: list[str] | None) -> None:
    served = MonitoringSettings(**section).served_hosts
    assert served == ServedHosts(None if names is None else frozenset(names))


@pytest.mark.parametrize("name", ["https://api.example.org", "api.example.org:8774", "api/", "", "*"])
def test_what_is_no_name_of_a_host_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match=r"such as api\.example\.org"):
        ApiSettings(hosts=(name,))

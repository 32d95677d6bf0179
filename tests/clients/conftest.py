"""A running API for unmodified clients: a small simulated fleet at rest, and the logins that `fleetlight up` makes."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from openstack.config import OpenStackConfig
from openstack.connection import Connection
from openstack.identity.v3._proxy import Proxy

from tests.support.servers.live_api import LiveApi, live_api
from tests.support.waiting import wait_until

INSTANCES = 30


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveApi]:
    folder = tmp_path_factory.mktemp("live")
    with live_api(folder, "--cells", "2", "--simulate", "--instances", str(INSTANCES), "--rate", "0") as api:
        # The API is ready before the simulation has made all instances.
        with closing(connection(api, "fleetlight")) as connected:
            wait_until(lambda: len(list(connected.compute.servers(all_projects=True))) == INSTANCES, timeout_s=120)
        yield api


def connection(live: LiveApi, cloud: str) -> Connection:
    """openstacksdk as a program would set it up: from clouds.yaml alone."""
    config = OpenStackConfig(config_files=[str(live.clouds_file)], load_envvars=False)
    return Connection(config=config.get_one(cloud=cloud))


def identity_of(connected: Connection) -> Proxy:
    """The identity API; the SDK finds out which version there is, and would take an older one too."""
    identity = connected.identity
    assert isinstance(identity, Proxy)
    return identity


def user_id_of(connected: Connection) -> str:
    user_id = connected.current_user_id
    assert user_id is not None
    return user_id


@pytest.fixture(scope="session")
def admin(live: LiveApi) -> Iterator[Connection]:
    with closing(connection(live, "fleetlight")) as connected:
        yield connected


@pytest.fixture(scope="session")
def member(live: LiveApi) -> Iterator[Connection]:
    with closing(connection(live, "fleetlight-demo")) as connected:
        yield connected

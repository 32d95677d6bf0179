"""The fleet over a Nova deployment, with one application that asks the cells and one that has an index."""

from collections.abc import Iterator

import pytest

from tests.support.fleets.nova_fleet import NovaFleet, nova_fleet
from tests.support.servers.nova import NovaWorld


@pytest.fixture(scope="module")
def fleet(nova_deployment: NovaWorld, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NovaFleet]:
    urls = nova_deployment.urls
    with nova_fleet(tmp_path_factory.mktemp("nova-fleet"), urls, urls["cell2"]) as fleet:
        yield fleet

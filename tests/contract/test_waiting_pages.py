"""A page that waits until it may ask cells has read the index before: what removes documents does not wait so long."""

import asyncio
from contextlib import closing

import pytest

from fleetlight.api.settings import ApiSettings
from fleetlight.indexer.backends.opening import open_writer
from tests.contract.compute_fleet import ComputeFleet, searching
from tests.support.waiting import wait_until


@pytest.mark.parametrize("path", ["/v2.1/servers?all_tenants=1", "/fleetlight/query/counts?all_projects=1"])
def test_what_is_removed_from_the_index_while_it_waits_is_in_it(own_fleet: ComputeFleet, path: str) -> None:
    removed = own_fleet.create("north")
    own_fleet.create("east")
    own_fleet.index()
    own_fleet.index("east", is_complete=False)
    api = own_fleet.api(search=searching(staleness_limit_s=600), settings=ApiSettings(max_live_lists=1))

    async def scenario() -> tuple[str, bytes]:
        live = api.services.admission.live
        await live.acquire("another caller")
        asking = asyncio.create_task(api.fetch(path))
        await asyncio.to_thread(wait_until, lambda: live.waiting > 0)
        with closing(open_writer(own_fleet.index_settings)) as writer:
            writer.remove(writer.versions([removed]))
        live.release()
        answer = await asking
        return answer.headers["Fleetlight-Complete"], answer.content

    is_complete, content = api.run(scenario())
    assert is_complete == "true"
    assert content.count(b'"id"') == 2 or b'"count":2' in content

"""Every face refuses a list that cannot be made soon, in its own words, and answers all else beside lists."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from fleetlight.api.caller import Caller
from fleetlight.api.settings import ApiSettings
from tests.contract.compute_fleet import Api, ComputeFleet, compute_fleet

ADMIN = Caller("admin", None, frozenset({"admin"}))
EXPLAINED = "/fleetlight/explain?request=GET+/v2.1/servers"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComputeFleet]:
    with compute_fleet(tmp_path_factory.mktemp("fleet")) as fleet:
        fleet.create("north", display_name="web.example.com")
        fleet.index()
        yield fleet


@pytest.fixture
def busy(fleet: ComputeFleet) -> Api:
    return busy_api(fleet)


def busy_api(fleet: ComputeFleet) -> Api:
    """An API that makes as many pages as it may, none of which ends."""
    api = fleet.api(settings=ApiSettings(max_lists=1, max_live_lists=1, max_waiting_lists=0))
    api.run(api.services.admission.of(ADMIN).enter(is_small=False))
    return api


@pytest.mark.parametrize(
    "path",
    [
        "/v2.1/servers",
        "/v2.1/servers/detail",
        "/v2.1/servers?marker=00000000-0000-4000-8000-000000000000",
        "/fleetlight/query?what=instance&fields=name",
        "/fleetlight/query?what=job&fields=id",
        "/fleetlight/query/counts?what=instance",
        "/fleetlight/capacity",
        "/fleetlight/changes/recent",
        EXPLAINED,
    ],
)
def test_list_gets_503_with_retry_after(busy: Api, path: str) -> None:
    refused = busy.get(path)
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "2")
    message = "Too many lists are asked for. Try again in 2 seconds."
    assert refused.json() == {"serviceUnavailable": {"code": 503, "message": message}}


def rate_limit(answer: httpx.Response) -> tuple[str, str]:
    return answer.headers["RateLimit-Policy"], answer.headers["RateLimit"]


def test_answers_tell_of_the_limit_and_what_is_left_of_it(busy: Api, fleet: ComputeFleet) -> None:
    usual = fleet.api(settings=ApiSettings(max_waiting_lists=40)).get("/v2.1/servers")
    assert rate_limit(usual) == ('"lists";q=10;qu="concurrent-requests"', '"lists";r=10')
    for _ in range(2):  # the second one is refused before it is looked at
        assert rate_limit(busy.get("/v2.1/servers")) == ('"lists";q=1;qu="concurrent-requests"', '"lists";r=0;t=2')
    assert "RateLimit" not in busy.get("/v2.1").headers


def test_requests_and_refusals_are_counted_of_the_projects_that_come_first(fleet: ComputeFleet) -> None:
    api = fleet.api(settings=ApiSettings(max_lists=1, max_live_lists=1, max_waiting_lists=0, max_project_metrics=2))
    api.get("/v2.1/servers", as_project("first"))
    api.run(api.services.admission.of(ADMIN).enter(is_small=False))
    for project in ("first", "first", "second", "third", "fourth"):
        api.get("/v2.1/servers", as_project(project))
    api.get("/v2.1", as_project("fourth"))
    assert counted_by_project(api) == {
        ("first", "no"): 1,
        ("first", "yes"): 2,
        ("second", "yes"): 1,
        ("others", "yes"): 2,
    }
    assert counted_by_project(fleet.api()) == {}


def as_project(project: str) -> dict[str, str]:
    return {"X-User-Id": "ada", "X-Project-Id": project}


def counted_by_project(api: Api) -> dict[tuple[str, str], float]:
    return {
        (sample.labels["project"], sample.labels["refused"]): sample.value
        for registry in api.services.metrics.registries
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == "fleetlight_api_project_requests_total"
    }


@pytest.mark.parametrize("path", ["/2/instances?bulk=1", "/2/instances", "/2/nodes", "/cells/north/2/nodes"])
def test_list_of_the_remote_api_gets_its_fault(busy: Api, path: str) -> None:
    refused = busy.get(path)
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "2")
    assert refused.json()["message"] == "Too many lists are asked for. Try again in 2 seconds."
    assert refused.json()["code"] == 503


def test_small_requests_are_answered_beside_lists(busy: Api, fleet: ComputeFleet) -> None:
    uuid = fleet.api().ids("/v2.1/servers")[0]
    for path in ("/", "/healthz", "/readyz", "/v2.1", f"/v2.1/servers/{uuid}", "/2/instances/web.example.com"):
        assert busy.get(path).status_code < 400, path


def test_change_is_made_beside_lists(tmp_path: Path) -> None:
    with compute_fleet(tmp_path) as fleet:
        uuid = fleet.create("north")
        api = busy_api(fleet)
        assert api.request("POST", f"/v2.1/servers/{uuid}/action", json={"lock": None}).status_code == 202


def test_list_that_asks_cells_gets_503_while_others_do_and_the_index_answers_the_rest(tmp_path: Path) -> None:
    with compute_fleet(tmp_path) as fleet:
        fleet.index()
        api = fleet.api(settings=ApiSettings(max_lists=2, max_live_lists=1, max_waiting_lists=0))

        async def ask_cells() -> None:
            place = await api.services.admission.of(ADMIN).enter(is_small=False)
            await place.ask_cells()

        api.run(ask_cells())
        assert api.get("/v2.1/servers", {"Fleetlight-Consistency": "strong"}).status_code == 503
        assert api.get("/v2.1/servers").status_code == 200


def test_whole_answer_that_was_begun_is_not_cut_off(tmp_path: Path) -> None:
    with compute_fleet(tmp_path) as fleet:
        for _ in range(5):
            fleet.create("north")
        fleet.index()
        api = fleet.api(settings=ApiSettings(max_limit=2, max_lists=1, max_live_lists=1, max_waiting_lists=0))
        assert len(api.get("/2/instances?bulk=1").json()) == 5


def test_refusal_counts_again_for_the_same_caller_until_there_is_a_place(fleet: ComputeFleet) -> None:
    api = fleet.api(settings=ApiSettings(max_lists=1, max_live_lists=1, max_waiting_lists=0))
    place = api.run(api.services.admission.of(ADMIN).enter(is_small=False))
    first, again = (api.get(f"/v2.1/servers?limit={limit}", {"X-User-Id": "ada"}) for limit in (1, 2))
    assert (first.status_code, again.status_code, again.text) == (503, 503, first.text)
    assert again.headers["X-Openstack-Request-Id"] != first.headers["X-Openstack-Request-Id"]
    assert again.headers["X-Openstack-Request-Id"] == again.headers["X-Compute-Request-Id"]
    assert again.headers["Retry-After"] == "2"
    counted = 'fleetlight_api_requests_total{method="GET",route="/v2.1/servers",status="503"} 2.0'
    assert counted in api.metrics()
    assert 'fleetlight_lists_refused_total{queue="lists",reason="full"} 2.0' in api.metrics()
    assert api.get("/v2.1/servers?limit=no", {"X-User-Id": "bob"}).status_code == 400
    assert api.get("/v2.1/flavors", {"X-User-Id": "ada"}).status_code == 200
    place.leave()
    assert api.get("/v2.1/servers?limit=1", {"X-User-Id": "ada"}).status_code == 200

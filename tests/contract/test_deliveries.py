"""Deliveries of subscriptions to real receivers: what comes, in which order, and what becomes of failures."""

import asyncio
import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from standardwebhooks import Webhook

from fleetlight.api.identity.passwords import hash_password
from fleetlight.api.settings import DeliverySettings
from fleetlight.cells.errors import FleetUnreachableError
from fleetlight.delivery.run import MAX_REQUESTS
from tests.contract.compute_fleet import Api, ComputeFleet
from tests.support.deliveries import Received, Receiver, RunningDeliverer, delivering, receiving
from tests.support.waiting import wait_until

HOW_TO = Path(__file__).parents[2] / "docs/operations/webhooks.md"
ADMIN = {"X-User-Id": "root", "X-Roles": "admin", "X-Project-Id": "demo"}
_SUBSCRIPTIONS = "/fleetlight/subscriptions"
LOCAL = DeliverySettings(allowed_networks=("127.0.0.0/8",), allow_unencrypted=True)


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


@pytest.fixture(scope="module")
def deliverer(fleet: ComputeFleet) -> Iterator[RunningDeliverer]:
    with delivering(fleet.fleet_url) as running:
        yield running


@pytest.fixture(scope="module")
def api(fleet: ComputeFleet) -> Api:
    return fleet.api(delivery=LOCAL)


class Subscriber:
    """One subscription of a test. path: of its target. uuid: of an instance that it is about."""

    numbers = count()

    def __init__(self, fleet: ComputeFleet, api: Api, receiver: Receiver, **values: Any) -> None:
        self.fleet, self.receiver, self.api = fleet, receiver, api
        self.path = f"/{next(self.numbers)}"
        self.name = f"web{self.path[1:]}"
        body = {"name": "all", "url": receiver.url + self.path, "filter": f"name =~ m/^{self.name}-/"}
        answer = self.api.request("POST", _SUBSCRIPTIONS, ADMIN, json=body | {"fields": ["name", "serial_no"]} | values)
        assert answer.status_code == 201, answer.text
        self.shown = answer.json()
        self.id = self.shown["id"]

    def begun(self) -> "Subscriber":
        self.receiver.wait_for_type(self.path, "complete")
        return self

    def create(self, *names: str) -> Sequence[str]:
        uuids = [self.fleet.create("north", display_name=f"{self.name}-{name}") for name in names]
        self.fleet.number_changes()
        return uuids

    def change(self, uuid: str, times: int = 1) -> None:
        for _ in range(times):
            self.fleet.operations("north").update(uuid, {"display_description": str(next(self.numbers))})
        self.fleet.number_changes()

    def show(self) -> Any:
        return self.api.get(f"{_SUBSCRIPTIONS}/{self.id}", ADMIN).json()

    def post(self, action: str, **body: Any) -> Any:
        content = {"json": body} if "failures" in action else {}
        answer = self.api.request("POST", f"{_SUBSCRIPTIONS}/{self.id}/{action}", ADMIN, **content)
        assert answer.status_code in {200, 202}, answer.text
        return answer.json()

    def failures(self) -> Any:
        return self.api.get(f"{_SUBSCRIPTIONS}/{self.id}/failures", ADMIN).json()["failures"]

    def revisions(self, uuid: str) -> Sequence[int]:
        return [each.data["revision"] for each in self.receiver.changes(self.path) if each.data["id"] == uuid]


@pytest.fixture
def subscribe(
    fleet: ComputeFleet, api: Api, receiver: Receiver, deliverer: RunningDeliverer
) -> Iterator[Callable[..., Subscriber]]:
    made: list[Subscriber] = []

    def make(**values: Any) -> Subscriber:
        made.append(Subscriber(fleet, api, receiver, **values))
        return made[-1]

    yield make
    receiver.answer = lambda _: 204
    for each in made:
        each.api.request("DELETE", f"{_SUBSCRIPTIONS}/{each.id}", ADMIN)


def test_libraries_read_and_verify_what_is_delivered(subscribe: Callable[..., Subscriber]) -> None:
    subscriber = subscribe().begun()
    [uuid] = subscriber.create("a")
    subscriber.change(uuid)
    enter, change = subscriber.receiver.wait_for(subscriber.path, 2)
    assert [each.type for each in (enter, change)] == ["fleetlight.instance.enter", "fleetlight.instance.change"]
    assert enter.event.get_source() == f"{_SUBSCRIPTIONS}/{subscriber.id}"
    assert enter.event.get_subject() == uuid
    assert enter.event.get_datacontenttype() == "application/json"
    assert enter.event.get_time() is not None
    assert enter.data["cells"] == [[0, f"{subscriber.name}-a"], [0, 1]]
    for each in (enter, change):
        assert Webhook(subscriber.shown["secret"]).verify(each.body, dict(each.headers))["id"] == each.id
        assert each.headers["webhook-id"] == each.id
    wait_until(lambda: subscriber.show()["complete"] is True and subscriber.show()["delivered"] == 3)


def test_first_event_says_that_the_feed_has_begun(subscribe: Callable[..., Subscriber]) -> None:
    subscriber = subscribe().begun()
    subscriber.create("a")
    subscriber.receiver.wait_for(subscriber.path, 1)
    complete = subscriber.receiver.events(subscriber.path)[0]
    assert complete.type == "fleetlight.complete"
    assert complete.data["cells"]["north"]["state"] == "followed"


def test_each_instance_is_delivered_in_order_while_its_target_fails(subscribe: Callable[..., Subscriber]) -> None:
    subscriber = subscribe().begun()
    failed: dict[str, int] = {}

    def fail_twice(received: Received) -> int:
        failed[received.id] = failed.get(received.id, 0) + 1
        return 204 if failed[received.id] > 2 else 500

    subscriber.receiver.answer = fail_twice
    uuids = subscriber.create("a", "b", "c")
    for uuid in uuids:
        subscriber.change(uuid, times=4)
    subscriber.receiver.wait_for(subscriber.path, 45)
    for uuid in uuids:
        assert subscriber.revisions(uuid) == [revision for revision in range(1, 6) for _ in range(3)]
    assert subscriber.failures() == []


def test_target_that_hangs_delays_no_other(subscribe: Callable[..., Subscriber]) -> None:
    hung, other = subscribe().begun(), subscribe().begun()
    hung.receiver.answer = lambda received: None if received.path == hung.path else 204
    hung.create("a")
    hung.receiver.wait_for(hung.path, 1)
    uuids = other.create("a", "b")
    assert {each.data["id"] for each in other.receiver.wait_for(other.path, 2)} == set(uuids)
    assert hung.show()["delivered"] == 1
    hung.receiver.release()
    wait_until(lambda: hung.show()["delivered"] == 2)


def test_target_that_is_away_is_asked_once_at_a_time_and_misses_nothing(subscribe: Callable[..., Subscriber]) -> None:
    subscriber = subscribe().begun()
    subscriber.receiver.answer = lambda _: web.Response(status=503, headers={"Retry-After": "1"})
    uuids = subscriber.create(*map(str, range(40)))
    wait_until(lambda: subscriber.show()["failing_since"])
    assert "503" in subscriber.show()["last_error"]
    attempts = len(subscriber.receiver.events(subscriber.path))
    assert attempts <= 1 + MAX_REQUESTS + 1
    subscriber.receiver.answer = lambda _: 204
    wait_until(lambda: subscriber.show()["delivered"] == 41)
    assert {each.data["id"] for each in subscriber.receiver.changes(subscriber.path)} == set(uuids)
    assert len(subscriber.receiver.changes(subscriber.path)) <= attempts + 40
    assert (subscriber.show()["failing_since"], subscriber.failures()) == (None, [])


def test_event_that_is_refused_is_put_aside_replayed_and_skipped(subscribe: Callable[..., Subscriber]) -> None:
    subscriber = subscribe().begun()
    bad, skipped = f"{subscriber.name}-bad", f"{subscriber.name}-skipped"
    refused = {bad, skipped}
    subscriber.receiver.answer = lambda received: 400 if received.data["cells"][0][1] in refused else 204
    uuids = dict(zip((bad, "good", skipped), subscriber.create("bad", "good", "skipped"), strict=True))
    failures = wait_until(lambda: found if len(found := subscriber.failures()) == 2 else [])
    by_name = {each["subject"]: each for each in failures}
    failure = by_name[uuids[bad]]
    assert (failure["times"], failure["reason"], failure["waiting"]) == (3, "it answered 400", False)
    assert failure["type"] == "fleetlight.instance.enter"
    assert json.loads(failure["body"])["id"] == failure["event"]
    assert subscriber.post("failures/skip", ids=[by_name[uuids[skipped]]["id"]]) == {"count": 1}
    assert subscriber.post("failures/replay") == {"count": 1}
    wait_until(lambda: [each["times"] for each in subscriber.failures()] == [4])
    refused.clear()
    assert subscriber.post("failures/replay", ids=[failure["id"]]) == {"count": 1}
    wait_until(lambda: subscriber.failures() == [])
    assert {each.id for each in subscriber.receiver.changes(subscriber.path) if each.data["id"] == uuids[bad]} == {
        failure["event"]
    }
    assert len(subscriber.revisions(uuids[skipped])) == 3


def test_event_of_a_test_is_delivered_or_says_why_not(subscribe: Callable[..., Subscriber]) -> None:
    subscriber = subscribe().begun()
    subscriber.post("test")
    assert subscriber.receiver.wait_for_type(subscriber.path, "test").data == {}
    wait_until(lambda: subscriber.failures() == [])
    subscriber.receiver.answer = lambda _: 404
    tested = subscriber.post("test")["id"]
    [failure] = wait_until(lambda: [each for each in subscriber.failures() if not each["waiting"]])
    assert (failure["id"], failure["reason"]) == (tested, "it answered 404")


def test_redirect_is_not_followed(subscribe: Callable[..., Subscriber]) -> None:
    subscriber, other = subscribe().begun(), subscribe(filter='name == "no"').begun()
    location = {"Location": other.receiver.url + other.path}
    subscriber.receiver.answer = lambda _: web.Response(status=307, headers=location)
    subscriber.create("a")
    [failure] = wait_until(subscriber.failures)
    assert failure["reason"] == "it answered 307; redirects are not followed"
    assert other.receiver.changes(other.path) == []


def test_target_that_is_gone_ends_the_subscription(subscribe: Callable[..., Subscriber]) -> None:
    subscriber = subscribe().begun()
    subscriber.receiver.answer = lambda _: 410
    subscriber.create("a")
    wait_until(lambda: subscriber.show()["state"] == "ended")
    assert subscriber.show()["reason"] == "the target answered 410: it wants no more"
    answer = subscriber.api.request("POST", f"{_SUBSCRIPTIONS}/{subscriber.id}/resume", ADMIN)
    assert answer.status_code == 409


def test_nothing_is_delivered_while_paused_and_all_of_it_afterwards(subscribe: Callable[..., Subscriber]) -> None:
    paused, other = subscribe().begun(), subscribe().begun()
    paused.create("before")
    paused.receiver.wait_for(paused.path, 1)
    wait_until(lambda: paused.show()["delivered"] == 2)
    assert paused.post("pause")["state"] == "paused"
    # Whatever the deliverer did, it has looked since, for it began another one.
    subscribe(filter='name == "no"').begun()
    [missed] = paused.create("missed")
    other.create("a")
    other.receiver.wait_for(other.path, 1)
    assert len(paused.receiver.changes(paused.path)) == 1
    assert paused.post("resume")["state"] == "active"
    assert paused.receiver.wait_for(paused.path, 2)[1].data["id"] == missed


def test_restart_loses_nothing_and_doubles_nothing_by_id(own_fleet: ComputeFleet, receiver: Receiver) -> None:
    subscriber = Subscriber(own_fleet, own_fleet.api(delivery=LOCAL), receiver)
    with delivering(own_fleet.fleet_url):
        [first] = subscriber.begun().create("a")
        receiver.wait_for(subscriber.path, 1)
    subscriber.change(first, times=3)
    [second] = subscriber.create("b")
    with delivering(own_fleet.fleet_url):
        receiver.wait_for(subscriber.path, 5)
        subscriber.change(second)
        received = receiver.wait_for(subscriber.path, 6)
    assert [each.id for each in received] == list(dict.fromkeys(each.id for each in received))
    assert (subscriber.revisions(first), subscriber.revisions(second)) == ([1, 2, 3, 4], [1, 2])


def test_what_a_killed_deliverer_had_not_written_down_comes_again_with_the_same_ids(
    own_fleet: ComputeFleet, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscriber = Subscriber(own_fleet, own_fleet.api(delivery=LOCAL), receiver)
    with delivering(own_fleet.fleet_url) as killed:
        subscriber.begun()
        wait_until(lambda: subscriber.show()["delivered"] == 1)

        def forget(*_: object) -> None:
            raise FleetUnreachableError("killed")

        monkeypatch.setattr(killed.fleet.subscriptions, "save", forget)
        subscriber.create("a", "b", "c")
        ids = {each.id for each in receiver.wait_for(subscriber.path, 3)}
    with delivering(own_fleet.fleet_url):
        received = receiver.wait_for(subscriber.path, 6)
    assert {each.id for each in received} == ids


def test_changes_that_are_forgotten_are_a_reset(own_fleet: ComputeFleet, receiver: Receiver) -> None:
    subscriber = Subscriber(own_fleet, own_fleet.api(delivery=LOCAL), receiver)
    with delivering(own_fleet.fleet_url):
        subscriber.begun()
        wait_until(lambda: subscriber.show()["delivered"] == 1)
    subscriber.create("a", "b")
    own_fleet.forget_changes("north")
    with delivering(own_fleet.fleet_url):
        reset = receiver.wait_for_type(subscriber.path, "reset")
        assert "not all changes of a cell since then are kept" in reset.data["reason"]
        [uuid] = subscriber.create("c")
        assert receiver.wait_for(subscriber.path, 1)[0].data["id"] == uuid


def test_one_of_several_deliverers_delivers_and_another_one_takes_over(
    own_fleet: ComputeFleet, receiver: Receiver
) -> None:
    subscriber = Subscriber(own_fleet, own_fleet.api(delivery=LOCAL), receiver)
    with delivering(own_fleet.fleet_url):
        with delivering(own_fleet.fleet_url):
            subscriber.begun().create("a", "b")
            receiver.wait_for(subscriber.path, 2)
        subscriber.create("c")
        received = receiver.wait_for(subscriber.path, 3)
    assert len({each.id for each in received}) == len(received) == 3


def test_subscription_of_a_target_that_takes_nothing_for_days_is_suspended(
    own_fleet: ComputeFleet, receiver: Receiver
) -> None:
    subscriber = Subscriber(own_fleet, own_fleet.api(delivery=LOCAL), receiver)
    receiver.answer = lambda _: 503
    impatient = {**LOCAL.model_dump(), "suspend_after_d": 1e-6}
    with delivering(own_fleet.fleet_url, delivery=impatient) as deliverer:
        wait_until(lambda: subscriber.show()["state"] == "suspended")
        assert subscriber.show()["reason"] == "its target has taken nothing for too long: it answered 503"
        wait_until(lambda: deliverer.metric("fleetlight_deliverer_subscriptions", state="suspended") == 1)
        receiver.answer = lambda _: 204
        subscriber.post("resume")
        subscriber.begun()
        wait_until(lambda: subscriber.show()["failing_since"] is None)


def test_name_of_an_inner_address_is_not_connected_to(own_fleet: ComputeFleet, receiver: Receiver) -> None:
    """0x7f.1 is 127.0.0.1 to a resolver, and a name to what looks at the URL."""
    url = receiver.url.replace("127.0.0.1", "0x7f.1") + "/inner"
    subscriber = Subscriber(own_fleet, own_fleet.api(delivery=LOCAL), receiver, url=url)
    with delivering(own_fleet.fleet_url, delivery={"allow_unencrypted": True}):
        wait_until(lambda: "inner" in (subscriber.show()["last_error"] or ""))
    assert receiver.events("/inner") == []
    with delivering(own_fleet.fleet_url):
        receiver.wait_for_type("/inner", "complete")


def test_subscription_ends_with_the_rights_of_its_owner(own_fleet: ComputeFleet, receiver: Receiver) -> None:
    users = own_fleet.folder / "users"
    line = f"ada:{hash_password('secret')}:demo:member\n"
    users.write_text(line)
    identity = {"api": {"auth": "basic"}, "identity": {"htpasswd_file": str(users)}}
    api = own_fleet.api(delivery=LOCAL)
    ada = {"X-User-Id": "ada", "X-Roles": "member", "X-Project-Id": "demo"}
    body = {"name": "mine", "url": f"{receiver.url}/ada"}
    found = api.request("POST", _SUBSCRIPTIONS, ada, json=body).json()
    with delivering(own_fleet.fleet_url, **identity):
        receiver.wait_for_type("/ada", "complete")
        users.write_text(line.replace("member", "reader"))
        wait_until(lambda: own_fleet.fleet.subscriptions.find(found["id"]).state == "ended")
    assert own_fleet.fleet.subscriptions.find(found["id"]).reason == "its owner has lost the role member"


def test_documented_receiver_verifies_drops_repetitions_and_keeps_a_copy(
    own_fleet: ComputeFleet, receiver: Receiver
) -> None:
    """The code of docs/operations/webhooks.md, given the requests that came here."""
    code: dict[str, Any] = {}
    exec("\n".join(re.findall(r"```python\n(.*?)```", HOW_TO.read_text(), re.DOTALL)), code)  # noqa: S102
    store = sqlite3.connect(":memory:")
    store.execute("CREATE TABLE seen (id TEXT PRIMARY KEY)")
    store.execute("CREATE TABLE copy (id TEXT PRIMARY KEY, revision INTEGER, name TEXT)")
    listed: list[str] = []
    subscriber = Subscriber(own_fleet, own_fleet.api(delivery=LOCAL), receiver, fields=["name"])
    with delivering(own_fleet.fleet_url):
        kept, gone = subscriber.begun().create("kept", "gone")
        own_fleet.operations("north").delete(gone)
        subscriber.change(kept)
        receiver.wait_for(subscriber.path, 4)
    application = code["receiver"](subscriber.shown["secret"], store, lambda _, kind: listed.append(kind))
    requests = receiver.events(subscriber.path)

    async def post_all() -> list[int]:
        async with TestClient(TestServer(application)) as client:
            sent = [*requests, *requests]
            statuses = [(await client.post("/hook", data=each.body, headers=each.headers)).status for each in sent]
            forged = {**requests[0].headers, "webhook-id": "another"}
            return [*statuses, (await client.post("/hook", data=requests[0].body, headers=forged)).status]

    assert asyncio.run(post_all()) == [204] * 2 * len(requests) + [401]
    assert listed == ["complete"]
    found = store.execute("SELECT id, name FROM copy ORDER BY name").fetchall()
    assert found == [(gone, None), (kept, f"{subscriber.name}-kept")]
    store.close()

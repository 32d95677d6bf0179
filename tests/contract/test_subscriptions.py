"""`/fleetlight/subscriptions`: who sees and changes them, what is refused, and what is never shown."""

from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest

from fleetlight.api.subscriptions.brokers import BrokerAddress, broker_address
from fleetlight.cells.epochs import Position
from fleetlight.cells.errors import ResourceNotFoundError
from fleetlight.cells.fleet.subscriptions import MAX_OF_USER, DeliveryState, FailedDelivery, SubscriptionState
from tests.contract.compute_fleet import Api, ComputeFleet

ALL = "/fleetlight/subscriptions"
URL = "https://example.org/hook/path"
BROKER = "amqps://ada:hid%25den@broker.example.org/red?exchange=fleet"
KEY = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ADA, BOB, ROOT = (
    {"X-User-Id": user, "X-Roles": role, "X-Project-Id": project}
    for user, role, project in (("ada", "member", "red"), ("bob", "member", "red"), ("root", "admin", "demo"))
)


@pytest.fixture
def api(fleet: ComputeFleet, api: Api) -> Iterator[Api]:
    yield api
    for each in fleet.fleet.subscriptions.all():
        fleet.fleet.subscriptions.remove(each.id)


def subscribe(api: Api, user: Mapping[str, str] = ADA, **values: Any) -> httpx.Response:
    return api.request("POST", ALL, user, json={"name": "web", "url": URL} | values)


def seen(api: Api, user: Mapping[str, str]) -> list[Any]:
    found: list[Any] = api.get(ALL, user).json()["subscriptions"]
    return found


def test_owner_subscribes_looks_and_unsubscribes(api: Api) -> None:
    answer = subscribe(api, filter='vm_state == "active"', fields=["name"])
    assert answer.status_code == 201
    made = answer.json()
    assert made.pop("secret").startswith("whsec_")
    assert made == {
        "id": made["id"],
        "name": "web",
        "what": "instance",
        "filter": 'vm_state == "active"',
        "fields": ["name"],
        "all_projects": False,
        "target": URL,
        "state": "active",
        "reason": None,
        "owner": "ada",
        "project": "red",
        "mine": True,
        "created_at": made["created_at"],
        "complete": None,
        "delivered": 0,
        "delivered_at": None,
        "failing_since": None,
        "last_error": None,
        "failures": 0,
    }
    assert seen(api, ADA) == [made] == [api.get(f"{ALL}/{made['id']}", ADA).json()]
    assert api.request("DELETE", f"{ALL}/{made['id']}", ADA).status_code == 204
    assert seen(api, ADA) == []


def test_given_key_is_taken_and_no_later_answer_has_it(api: Api) -> None:
    made = subscribe(api, secret=KEY).json()
    assert made["secret"] == KEY
    assert KEY not in api.get(f"{ALL}/{made['id']}", ADA).text + api.get(ALL, ADA).text + api.get(ALL, ROOT).text


def test_password_of_a_broker_is_kept_and_in_no_answer(fleet: ComputeFleet, api: Api) -> None:
    answer = subscribe(api, url=BROKER)
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert (made["secret"], made["target"]) == (None, "amqps://ada@broker.example.org/red?exchange=fleet")
    one = f"{ALL}/{made['id']}"
    answers = [answer, *(api.get(path, user) for path in (ALL, one) for user in (ADA, ROOT))]
    assert not any("hid" in each.text for each in answers)
    assert api.get(one, ROOT).json()["target"] == "amqps://broker.example.org"
    store = fleet.fleet.subscriptions
    assert store.secret(made["id"]).get_secret_value() == "hid%den"
    assert broker_address(store.find(made["id"]).content.target) == BrokerAddress(
        is_encrypted=True, host="broker.example.org", port=5671, user="ada", virtual_host="red", exchange="fleet"
    )


@pytest.mark.parametrize("user", [BOB, {**ADA, "X-Project-Id": "blue"}])
def test_subscription_is_not_there_for_others(fleet: ComputeFleet, api: Api, user: dict[str, str]) -> None:
    one = f"{ALL}/{subscribe(api).json()['id']}"
    assert seen(api, user) == []
    requests: list[tuple[str, str, dict[str, Any]]] = [
        ("GET", "", {}),
        ("DELETE", "", {}),
        ("POST", "/pause", {}),
        ("POST", "/resume", {}),
        ("POST", "/test", {}),
        ("GET", "/failures", {}),
        ("POST", "/failures/replay", {"json": {}}),
        ("POST", "/failures/skip", {"json": {}}),
    ]
    for method, path, content in requests:
        assert api.request(method, one + path, user, **content).status_code == 404, path
    assert len(seen(api, ADA)) == 1


def test_administrator_sees_and_ends_all_but_not_the_whole_target(api: Api) -> None:
    made = subscribe(api).json()
    [shown] = seen(api, ROOT)
    assert (shown["id"], shown["owner"], shown["mine"]) == (made["id"], "ada", False)
    assert shown["target"] == "https://example.org"
    one = f"{ALL}/{made['id']}"
    assert api.request("POST", f"{one}/pause", ROOT).json()["state"] == "paused"
    assert api.request("DELETE", one, ROOT).status_code == 204


@pytest.mark.parametrize(
    ("values", "status", "says"),
    [
        ({"url": "http://example.org/"}, 400, "delivery.allow_unencrypted"),
        ({"url": "https://"}, 400, "names no host"),
        ({"url": "https://[::1/"}, 400, "is no URL"),
        ({"url": "https://example.org:99999/"}, 400, "is no URL"),
        ({"url": "https://example.org/\n"}, 400, "printable"),
        ({"url": "https://example.org/#part"}, 400, "fragment"),
        ({"url": "https://ada:hidden@example.org/"}, 400, "no user and no password"),
        ({"url": "https://localhost/"}, 400, "inner address"),
        ({"url": "https://169.254.169.254/latest"}, 400, "inner address"),
        ({"url": "https://[::ffff:10.0.0.1]/"}, 400, "inner address"),
        ({"url": "ftp://example.org/"}, 400, "https:// (a webhook) or amqps:// (a broker)"),
        ({"url": "amqp://ada:hidden@example.org/"}, 400, "must begin with amqps://; for amqp:// the operator sets"),
        ({"url": "amqps://ada:hidden@127.0.0.1/"}, 400, "inner address"),
        ({"url": "amqps://example.org/"}, 400, "names no user"),
        ({"url": "amqps://ada@example.org/"}, 400, "has no password"),
        ({"url": "amqps://ada:12/hidden@example.org/"}, 400, "names no user"),
        ({"url": "amqps://ada:12?hidden@example.org/"}, 400, "names no user"),
        ({"url": "amqps://ada:hidden#@example.org/"}, 400, "is no URL"),
        ({"url": "amqps://ada:hidden%00@example.org/"}, 400, "the password has a %XX that"),
        ({"url": "amqps://ada:hidden@example.org/%ff"}, 400, "the virtual host has a %XX that"),
        ({"url": "amqps://ada:hidden@example.org/?exchange="}, 400, "the exchange must be 1 to 255 bytes"),
        ({"url": "amqps://ada:hidden@example.org/?topic=hidden"}, 400, "?exchange=name"),
        ({"url": "amqps://ada:hidden@example.org/", "secret": KEY}, 400, "secret: a broker has none"),
        ({"secret": "whsec_c2hvcnQ="}, 400, "24 to 64 bytes"),
        ({"filter": "=="}, 400, "filter"),
        ({"filter": 'os == "debian"'}, 400, "os"),
        ({"fields": ["nam"]}, 400, "nam"),
        ({"what": "node"}, 404, "node"),
        ({"all_projects": True}, 403, "fleetlight:query:all_projects"),
        ({"name": ""}, 400, "name"),
        ({"more": 1}, 400, "more"),
    ],
)
def test_what_cannot_be_delivered_is_refused_by_name(api: Api, values: Any, status: int, says: str) -> None:
    answer = subscribe(api, **values)
    assert answer.status_code == status, answer.text
    (fault,) = answer.json().values()
    assert says in fault["message"]
    assert "hidden" not in answer.text
    assert seen(api, ADA) == []


def test_user_has_so_many_and_no_more(api: Api) -> None:
    for _ in range(MAX_OF_USER):
        assert subscribe(api).status_code == 201
    assert subscribe(api).status_code == 403
    assert subscribe(api, BOB).status_code == 201


def test_what_is_not_active_is_not_tested_and_what_has_ended_is_not_resumed(fleet: ComputeFleet, api: Api) -> None:
    made = subscribe(api).json()
    one = f"{ALL}/{made['id']}"
    assert api.request("POST", f"{one}/pause", ADA).status_code == 200
    assert api.request("POST", f"{one}/test", ADA).status_code == 409
    assert api.request("POST", f"{one}/resume", ADA).json()["state"] == "active"
    assert api.request("POST", f"{one}/test", ADA).status_code == 202
    fleet.fleet.subscriptions.change_state(made["id"], SubscriptionState.ENDED, "it was gone")
    for action in ("pause", "resume"):
        assert "it was gone" in api.request("POST", f"{one}/{action}", ADA).text


def test_failures_are_listed_page_by_page(fleet: ComputeFleet, api: Api) -> None:
    made = subscribe(api).json()
    for number in range(5):
        failed = FailedDelivery(
            f"f{number}", made["id"], "e", "fleetlight.instance.enter", None, "{}", "no", 8, number // 2
        )
        fleet.fleet.subscriptions.add_failure(failed)
    path, marker, ids = f"{ALL}/{made['id']}/failures?limit=2", "", []
    while True:
        page = api.get(path + marker, ADA).json()
        ids += [each["id"] for each in page["failures"]]
        if page["marker"] is None:
            break
        marker = f"&marker={page['marker']}"
    assert ids == ["f0", "f1", "f2", "f3", "f4"]
    assert seen(api, ADA)[0]["failures"] == 5
    assert api.get(f"{path}&marker=gone", ADA).status_code == 400
    assert api.get(f"{ALL}/{made['id']}/failures?limit=0", ADA).status_code == 400


def test_refused_events_are_not_shown_to_an_owner_who_has_lost_its_role(fleet: ComputeFleet, api: Api) -> None:
    was_admin = ADA | {"X-Roles": "admin"}
    made = subscribe(api, was_admin, all_projects=True).json()
    failed = FailedDelivery("f", made["id"], "e", "fleetlight.instance.enter", None, '{"of": "others"}', "no", 8, 1)
    fleet.fleet.subscriptions.add_failure(failed)
    path = f"{ALL}/{made['id']}/failures"
    assert "others" in api.get(path, was_admin).text
    refused = api.get(path, ADA)
    assert (refused.status_code, "others" in refused.text) == (403, False)
    assert api.get(path, ROOT).status_code == 200


def test_owner_who_comes_by_confirms_its_subscriptions(fleet: ComputeFleet, api: Api) -> None:
    made = subscribe(api).json()
    store = fleet.fleet.subscriptions
    store.confirm([made["id"]], 1)
    seen(api, ROOT)
    seen(api, {**ADA, "X-Roles": "reader"})
    assert store.find(made["id"]).confirmed_at == 1
    seen(api, ADA)
    assert store.find(made["id"]).confirmed_at > 1


def test_all_that_is_kept_of_a_subscription_goes_with_it(fleet_of_any_database: ComputeFleet) -> None:
    store = fleet_of_any_database.fleet.subscriptions
    made = subscribe(fleet_of_any_database.api()).json()["id"]
    positions = {"0b6a1f3e-6f1c-5a7e-9a55-1de2f0c2a9b4": Position(None, 7)}
    store.save(made, positions, DeliveryState(is_complete=True, delivered=3))
    store.save(made, None, DeliveryState(is_complete=True, delivered=4))
    assert (store.positions(made), store.find(made).delivery.delivered) == (positions, 4)
    failed = FailedDelivery("f", made, "e", "fleetlight.test", None, "{}", "no", 1, 1)
    assert [store.add_failure(failed), store.add_failure(failed)] == [1, 1]
    assert store.want(made, None) == 1
    assert [each.id for each in store.wanted()] == ["f"]
    store.remove(made)
    store.save(made, positions, DeliveryState())
    assert (store.positions(made), store.wanted(), store.failures(made, None, 9)) == ({}, [], [])
    with pytest.raises(ResourceNotFoundError):
        store.secret(made)

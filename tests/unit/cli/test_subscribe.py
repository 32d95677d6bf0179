"""`fleetlight subscribe`: subscriptions of the operator."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.fleet.subscriptions import FailedDelivery, SubscriptionState
from fleetlight.cli.data_folder import DataFolder
from fleetlight.manager.commands.embedded import set_up_fleet
from tests.support.deliveries import delivering, receiving
from tests.unit.cli.conftest import Run

URL = "https://example.org/hook"


@pytest.fixture
def fleet(empty_place: Path) -> Iterator[Fleet]:
    folder = DataFolder(empty_place / "fleetlight-data")
    folder.create()
    fleet = set_up_fleet(folder)
    yield fleet
    fleet.close()


def added(run: Run, fleet: Fleet, *options: str) -> str:
    result = run("subscribe", "add", "all", "--url", URL, *options)
    assert result.exit_code == 0, result.output
    assert "key: whsec_" in result.stdout
    return fleet.subscriptions.all()[-1].id


def shown(run: Run, subscription_id: str) -> Any:
    return json.loads(run("subscribe", "show", subscription_id, "--output", "json").stdout)


def test_operator_subscribes_to_all_projects_or_one(run: Run, fleet: Fleet) -> None:
    added(run, fleet, "--fields", "name,status", "--filter", 'name == "web"')
    added(run, fleet, "--project", "demo")
    one, other = (each.content for each in fleet.subscriptions.all())
    assert (one.user_id, one.project_id, one.all_projects, one.fields) == (None, None, True, ["name", "status"])
    assert (other.user_id, other.project_id, other.all_projects) == (None, "demo", False)
    assert "operator" in run("subscribe", "list").stdout


def test_key_is_shown_once(run: Run, fleet: Fleet) -> None:
    subscription_id = added(run, fleet)
    key = fleet.subscriptions.secret(subscription_id).get_secret_value()
    for command in (("list",), ("list", "--output", "json"), ("show", subscription_id)):
        assert key not in run("subscribe", *command).output


def test_password_of_a_broker_is_never_shown(run: Run, fleet: Fleet) -> None:
    result = run("subscribe", "add", "all", "--url", "amqps://ada:hidden@broker.example.org/")
    [made] = fleet.subscriptions.all()
    assert result.output == f"id: {made.id}\n"
    assert fleet.subscriptions.secret(made.id).get_secret_value() == "hidden"
    for command in (("list",), ("list", "--output", "json"), ("show", made.id)):
        output = run("subscribe", *command).output
        assert "amqps://ada@broker" in output
        assert "hidden" not in output


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--url", "http://example.org/"), "delivery.allow_unencrypted"),
        (("--url", "https://10.0.0.1/"), "is an inner address"),
        (("--url", "https://user:secret@example.org/"), "has no user and no password"),
        (("--url", "amqps://user:secret@10.0.0.1/"), "is an inner address"),
        (("--url", URL, "--filter", "=="), "filter"),
        (("--url", URL, "--fields", "nam"), "name"),
    ],
)
def test_what_cannot_be_delivered_is_refused(run: Run, fleet: Fleet, options: tuple[str, ...], says: str) -> None:
    result = run("subscribe", "add", "all", *options)
    assert result.exit_code != 0
    assert says in result.output
    assert "secret" not in result.output
    assert fleet.subscriptions.all() == []


def test_subscription_is_paused_resumed_and_removed(run: Run, fleet: Fleet) -> None:
    subscription_id = added(run, fleet)
    for action, state in (("pause", "paused"), ("resume", "active")):
        assert f"{subscription_id}: {state}" in run("subscribe", action, subscription_id).stdout
        assert shown(run, subscription_id)["state"] == state
    fleet.subscriptions.change_state(subscription_id, SubscriptionState.ENDED, "it was gone")
    assert "it has ended: it was gone" in run("subscribe", "resume", subscription_id).output
    assert run("subscribe", "remove", subscription_id).exit_code == 0
    assert run("subscribe", "show", subscription_id).exit_code != 0


def test_refused_events_are_replayed_and_skipped(run: Run, fleet: Fleet) -> None:
    subscription_id = added(run, fleet)
    for event in ("one", "two"):
        fleet.subscriptions.add_failure(
            FailedDelivery(event, subscription_id, event, "fleetlight.instance.enter", None, "{}", "it said 500", 8, 1)
        )
    assert "it said 500" in run("subscribe", "failures", subscription_id).stdout
    assert run("subscribe", "replay", subscription_id).exit_code != 0
    assert "1 event to deliver again" in run("subscribe", "replay", subscription_id, "one").stdout
    assert [each.id for each in fleet.subscriptions.wanted()] == ["one"]
    assert "2 events skipped" in run("subscribe", "skip", subscription_id, "--all").stdout


def test_test_says_whether_the_target_took_it(
    run: Run, fleet: Fleet, empty_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETLIGHT_DELIVERY_ALLOWED_NETWORKS", '["127.0.0.0/8"]')
    monkeypatch.setenv("FLEETLIGHT_DELIVERY_ALLOW_UNENCRYPTED", "true")
    with receiving() as receiver:
        subscription_id = added(run, fleet, "--url", f"{receiver.url}/tested")
        assert "does `fleetlight deliverer` run?" in run("subscribe", "test", subscription_id, "--wait", "0").output
        url = f"sqlite:///{DataFolder(empty_place / 'fleetlight-data').fleet_database}"
        with delivering(url):
            assert run("subscribe", "test", subscription_id).stdout == "delivered\n"
            receiver.answer = lambda _: 401
            refused = run("subscribe", "test", subscription_id)
        assert refused.exit_code == 1
        assert "its target did not take the event: it answered 401" in refused.output
    assert fleet.subscriptions.failures(subscription_id, None, 9) == []

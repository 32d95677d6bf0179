"""`fleetlight accounts producer` and what belongs to it: who may announce instances in which cells."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fleetlight.bus.bus import Receiver
from fleetlight.bus.signatures import ProducerKey, SigningKey, is_signed
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.fleet.fleet import Fleet
from tests.unit.cli.conftest import Run, fleet_of_commands

SAMPLE = Path(__file__).parents[3] / "notifications" / "samples" / "instance.create.end.json"
FILE = Path("fleetlight-accounts/rack-agent.producer-key")


@pytest.fixture(autouse=True)
def fleet(empty_place: Path) -> Iterator[Fleet]:
    with closing(Fleet(create_database_engine(fleet_of_commands(empty_place)))) as opened:
        yield opened


def keys(fleet: Fleet) -> list[tuple[str, str, str, bool]]:
    names = {cell.uuid: cell.name for cell in fleet.cells()}
    return [
        (each.producer, names[each.cell_uuid], each.key.id, each.expires_at is None)
        for each in fleet.producer_keys.all()
    ]


def test_native_cell_takes_no_announcements_until_it_is_let_to(run: Run) -> None:
    assert [cell["announcements"] for cell in json.loads(run("cell", "list", "--output=json").stdout)] == [
        False,
        False,
    ]
    assert run("cell", "set", "two", "--announcements").stdout == "two: takes announcements of its producers\n"
    assert [cell["announcements"] for cell in json.loads(run("cell", "list", "--output=json").stdout)] == [
        False,
        True,
    ]
    table = run("cell", "list").stdout
    assert "ANNOUNCEMENTS" in table
    assert run("cell", "set", "two").exit_code == 2, "it has to be said what is to be set"


def test_cell_of_another_kind_takes_no_announcements_and_has_no_producers(run: Run, fleet: Fleet) -> None:
    fleet.add_cell("nova", CellKind.NOVA_DB, "mysql://nova", "")
    result = run("cell", "set", "nova", "--announcements")
    assert result.exit_code
    assert "cell nova is not native: an announcement there is only a hint" in result.stderr
    result = run("accounts", "producer", "rack-agent", "--cell", "nova")
    assert result.exit_code
    assert "cell nova has no producers" in result.stderr
    assert not FILE.exists()


def test_producer_gets_a_key_in_a_file_of_its_own_and_no_secret_is_shown(run: Run, fleet: Fleet) -> None:
    result = run("accounts", "producer", "rack-agent", "--cell", "one")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"rack-agent in one: its key = {FILE.absolute()} (new)\n"
    assert "one takes no announcements until it is let to: `fleetlight cell set one --announcements`" in result.stderr
    assert FILE.stat().st_mode & 0o777 == 0o600
    text = FILE.read_text(encoding="utf-8")
    key = ProducerKey.read(text)
    assert keys(fleet) == [("rack-agent", "one", key.key.id, True)]
    shown = result.output + run("accounts", "producers").output + run("accounts", "producers", "--output=json").output
    assert text.strip().rpartition(":")[2] not in shown
    assert key.key.secret.hex() not in shown
    listed = json.loads(run("accounts", "producers", "--output=json").stdout)
    assert listed == [{"producer": "rack-agent", "cell": "one", "key": key.key.id, "accepted_until": None}]


def test_another_cell_is_added_with_the_same_key(run: Run, fleet: Fleet) -> None:
    assert run("accounts", "producer", "rack-agent", "--cell", "one").exit_code == 0
    result = run("accounts", "producer", "rack-agent", "--cell", "two")
    assert result.stdout == f"rack-agent in one, two: its key = {FILE.absolute()} (kept)\n"
    key_id = ProducerKey.read(FILE.read_text(encoding="utf-8")).key.id
    assert sorted(keys(fleet)) == [("rack-agent", "one", key_id, True), ("rack-agent", "two", key_id, True)]


def test_without_its_file_a_producer_gets_a_new_key_for_all_of_its_cells(run: Run, fleet: Fleet) -> None:
    assert run("accounts", "producer", "rack-agent", "--cell", "one", "--cell", "two").exit_code == 0
    FILE.unlink()
    assert "(new)" in run("accounts", "producer", "rack-agent").stdout
    new = ProducerKey.read(FILE.read_text(encoding="utf-8")).key.id
    assert sorted((cell, is_newest) for _, cell, _, is_newest in keys(fleet)) == [
        ("one", False),
        ("one", True),
        ("two", False),
        ("two", True),
    ]
    assert {key_id for _, _, key_id, is_newest in keys(fleet) if is_newest} == {new}
    assert run("accounts", "producers").stdout.count("+00:00") == 2
    assert run("accounts", "producer", "rack-agent", "--accept-old-for-h", "0").exit_code == 0


def test_revoked_producer_has_no_key_and_its_file_does_not_bring_it_back(run: Run, fleet: Fleet) -> None:
    assert run("accounts", "producer", "rack-agent", "--cell", "one", "--cell", "two").exit_code == 0
    assert run("accounts", "revoke-producer", "rack-agent", "--cell", "two").stdout == "rack-agent: revoked in two\n"
    assert [cell for _, cell, _, _ in keys(fleet)] == ["one"]
    assert run("accounts", "revoke-producer", "rack-agent").stdout == "rack-agent: revoked in one\n"
    assert keys(fleet) == []
    result = run("accounts", "producer", "rack-agent", "--cell", "one")
    assert result.exit_code
    assert "is not that of producer rack-agent (any more); remove the file to get a new key" in result.stderr
    assert keys(fleet) == []
    result = run("accounts", "revoke-producer", "rack-agent")
    assert result.exit_code
    assert "producer rack-agent has no key there" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("a b", "--cell", "one"), "'a b' cannot be the name of a producer"),
        (("outbox:cell1", "--cell", "one"), "cannot be the name of a producer"),
        (("rack-agent",), "producer rack-agent may announce in no cell yet: give --cell"),
    ],
)
def test_bad_producer_is_refused_before_a_key_is_made(run: Run, arguments: tuple[str, ...], said: str) -> None:
    result = run("accounts", "producer", *arguments)
    assert result.exit_code
    assert said in result.stderr
    assert not list(Path().glob("fleetlight-accounts/*"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nonsense", "this is not the key of a producer"),
        (ProducerKey("other", SigningKey("0123abcd", bytes(32))).reveal(), "has the key of producer other"),
    ],
)
def test_file_with_something_else_is_refused(run: Run, text: str, said: str) -> None:
    FILE.parent.mkdir()
    FILE.write_text(text, encoding="utf-8")
    result = run("accounts", "producer", "rack-agent", "--cell", "one")
    assert result.exit_code
    assert said in result.stderr


def test_emit_signs_with_the_key_of_a_producer(run: Run, fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetlight.cli.notifications.is_in_process", lambda _cell: False)
    cell = fleet.cell("one")
    fleet.add_cell(cell.name, cell.kind, cell.database_url, "memory://")
    assert run("cell", "set", "one", "--announcements").exit_code == 0
    result = run("notifications", "emit", "--cell", "one", SAMPLE)
    assert result.exit_code == 1
    assert "cell one takes what is signed with the key of a producer: give --key-file" in result.stderr
    assert run("accounts", "producer", "rack-agent", "--cell", "one").exit_code == 0
    with closing(Receiver("memory://", cell.uuid, prefetch=10)) as receiver:
        result = run("notifications", "emit", "--cell", "one", "--key-file", FILE, SAMPLE)
        assert result.exit_code == 0, result.stderr
        (delivery,) = receiver.receive(1, 10**6, 10)
        receiver.ack([delivery])
    assert is_signed(delivery.headers, delivery.body, ProducerKey.read(FILE.read_text(encoding="utf-8")).key)


@pytest.mark.parametrize("text", [None, "nonsense"])
def test_emit_refuses_a_file_that_holds_no_key(run: Run, text: str | None) -> None:
    if text is not None:
        FILE.parent.mkdir()
        FILE.write_text(text, encoding="utf-8")
    result = run("notifications", "emit", "--cell", "one", "--key-file", FILE, SAMPLE)
    assert result.exit_code
    assert "--key-file: " in result.stderr
    assert "nonsense" not in result.stderr

"""`fleetlight cell certs`."""

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext

import pytest

from fleetlight.manager.agents.certificates import Pair, Role, is_due, issue, new_authority
from fleetlight.manager.agents.errors import CertificateError
from tests.unit.cli.conftest import Run

NOW = datetime(2026, 11, 24, tzinfo=UTC)


def test_authority_agents_and_workers_get_files(run: Run, empty_place: Path) -> None:
    made = run("cell", "certs", "cell1", "--agent", "node1", "--worker", "worker1")
    assert made.exit_code == 0, made.output
    folder = empty_place / "fleetlight-certs" / "cell1"
    keys = ["agent-node1.key", "authority.key", "worker-worker1.key"]
    assert sorted(path.name for path in folder.iterdir()) == sorted([*keys, *(f"{key[:-4]}.pem" for key in keys)])
    assert [stat.S_IMODE((folder / key).stat().st_mode) for key in keys] == [0o600] * 3


def test_what_is_good_for_long_stays_as_it_is(run: Run, empty_place: Path) -> None:
    run("cell", "certs", "cell1", "--agent", "node1")
    folder = empty_place / "fleetlight-certs" / "cell1"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    again = run("cell", "certs", "cell1")
    assert again.exit_code == 0
    assert "as it was" in again.stdout
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_what_ends_before_long_is_renewed_under_the_same_authority(run: Run, empty_place: Path) -> None:
    run("cell", "certs", "cell1", "--agent", "node1", "--agent", "node2")
    folder = empty_place / "fleetlight-certs" / "cell1"
    authority = Pair((folder / "authority.pem").read_bytes(), (folder / "authority.key").read_bytes())
    old = issue(authority, Role.AGENT, "node1", datetime.now(UTC) - timedelta(days=300))
    (folder / "agent-node1.pem").write_bytes(old.certificate)
    (folder / "agent-node1.key").write_bytes(old.key)
    other = (folder / "agent-node2.pem").read_bytes()
    renewed = run("cell", "certs", "cell1")
    assert "agent-node1.pem: renewed" in renewed.stdout
    assert (folder / "agent-node1.pem").read_bytes() != old.certificate
    assert (folder / "agent-node2.pem").read_bytes() == other
    assert (folder / "authority.pem").read_bytes() == authority.certificate


@pytest.mark.parametrize(("age", "due"), [(timedelta(), False), (timedelta(240), False), (timedelta(244), True)])
def test_a_certificate_is_due_when_a_third_of_its_life_is_left(age: timedelta, due: bool) -> None:
    authority = new_authority("cell1", NOW)
    assert is_due(issue(authority, Role.AGENT, "node1", NOW), authority.certificate, NOW + age) is due


def test_certificate_of_another_authority_is_due() -> None:
    issued = issue(new_authority("cell1", NOW), Role.AGENT, "node1", NOW)
    assert is_due(issued, new_authority("cell1", NOW).certificate, NOW)


def test_nothing_outlives_the_authority() -> None:
    authority = new_authority("cell1", NOW)
    last_days = NOW + timedelta(days=3640)
    assert not is_due(issue(authority, Role.AGENT, "node1", last_days), authority.certificate, last_days)
    with pytest.raises(CertificateError, match="the authority has ended at 2036-11-21"):
        issue(authority, Role.AGENT, "node1", NOW + timedelta(days=3651))


def test_half_of_a_new_pair_is_completed_by_the_next_call(run: Run, empty_place: Path) -> None:
    """A call that is ended between the two files of a pair has written the key."""
    folder = empty_place / "fleetlight-certs" / "cell1"
    folder.mkdir(parents=True)
    (folder / "authority.key").write_bytes(new_authority("cell1", NOW).key)
    assert run("cell", "certs", "cell1", "--agent", "node1").exit_code == 0
    authority = Pair((folder / "authority.pem").read_bytes(), (folder / "authority.key").read_bytes())
    (folder / "agent-node1.key").write_bytes(issue(authority, Role.AGENT, "node1", NOW).key)
    again = run("cell", "certs", "cell1")
    assert "agent-node1.pem: renewed" in again.stdout
    SSLContext(PROTOCOL_TLS_SERVER).load_cert_chain(folder / "agent-node1.pem", folder / "agent-node1.key")


def test_authority_without_its_key_is_not_replaced(run: Run, empty_place: Path) -> None:
    run("cell", "certs", "cell1", "--agent", "node1")
    folder = empty_place / "fleetlight-certs" / "cell1"
    (folder / "authority.key").unlink()
    before = (folder / "authority.pem").read_bytes()
    refused = run("cell", "certs", "cell1", "--agent", "node2")
    assert refused.exit_code == 2
    assert "authority.key is missing" in " ".join(refused.stderr.split())
    assert (folder / "authority.pem").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["cell1"], "name those that are to be made with --agent and --worker"),
        (["../cell1", "--agent", "node1"], "'../cell1' cannot be part of the name of a file"),
        (["cell1", "--agent", "a/b"], "'a/b' cannot be part of the name of a file"),
        (["cell1", "--agent", "nöde"], "'nöde' cannot be the name of a node: it is not ASCII"),
    ],
)
def test_what_makes_no_sense_is_refused(run: Run, arguments: list[str], text: str) -> None:
    refused = run("cell", "certs", *arguments)
    assert refused.exit_code in (1, 2)
    assert text in " ".join(refused.stderr.split())


def test_damaged_authority_is_told_about(run: Run, empty_place: Path) -> None:
    run("cell", "certs", "cell1", "--agent", "node1")
    (empty_place / "fleetlight-certs" / "cell1" / "authority.key").write_text("nothing")
    refused = run("cell", "certs", "cell1", "--agent", "node2")
    assert refused.exit_code == 1
    assert "the key of the authority cannot be read" in " ".join(refused.stderr.split())

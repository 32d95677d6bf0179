"""A stream of changes lasts no longer than the rights of who reads it, however they end."""

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import msgspec
import pytest

from fleetlight.api.caller import Caller
from fleetlight.api.http.connection import UNKNOWN, ClientConnection
from fleetlight.api.http.errors import DirectoryUnavailableError, IdentityServiceError, TooManyLoginsError
from fleetlight.api.identity.basic import BasicIdentity
from fleetlight.api.identity.passwords import PasswordChecks
from fleetlight.api.identity.tokens.directory import Directory, User
from fleetlight.cells.epochs import Position
from fleetlight.listing.watches.changelogs import ChangelogReading, ResetReason
from tests.contract.compute_fleet import ComputeFleet
from tests.contract.conftest import own_fleet
from tests.contract.identity_site import LIFETIME_S, TOKENS, Site, Time
from tests.contract.streams import Stream, stream
from tests.support.fleets.identity import DEMO, OTHER, ProgramsOnly, weak_hash
from tests.support.waiting import eventually

pytestmark = pytest.mark.no_rerun

NOT_ACCEPTED = "the credentials that the stream was opened with are not accepted any more"
fleet = own_fleet


@pytest.fixture(params=["by the next change", "while nothing changes"])
def is_busy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether there are changes to be told after the rights were lost."""
    if request.param == "while nothing changes":
        monkeypatch.setattr("fleetlight.listing.watches.watch._HEARTBEAT_S", 0.05)
        return False
    monkeypatch.setattr("fleetlight.listing.watches.watch._HEARTBEAT_S", 60)
    return True


def create(fleet: ComputeFleet, project_id: str) -> str:
    """A server that was just created."""
    uuid = fleet.create("north", project_id=project_id)
    fleet.number_changes()
    return uuid


async def assert_ends(watch: Stream, reason: str) -> None:
    """Nothing else is told before the end."""
    event = await watch.next()
    assert (event.name, event.data) == ("ended", {"reason": reason})
    await eventually(watch.ended.is_set)


LoseRights = Callable[[Site, str, Time], Awaitable[None]]


async def log_out(site: Site, token: str, time: Time) -> None:
    answer = await site.api.ask("DELETE", TOKENS, {"X-Auth-Token": token, "X-Subject-Token": token})
    assert answer.status_code == 204


async def remove_user(site: Site, token: str, time: Time) -> None:
    site.users.change(lambda directory: directory.without_user(directory.users["id-ada"]))


async def disable_user(site: Site, token: str, time: Time) -> None:
    change_user(site, enabled=False)


async def take_every_role(site: Site, token: str, time: Time) -> None:
    change_user(site, roles={})


async def remove_project(site: Site, token: str, time: Time) -> None:
    site.users.change(lambda directory: directory.without_project(directory.projects[DEMO]))


async def let_token_expire(site: Site, token: str, time: Time) -> None:
    time.now += (LIFETIME_S + 1) * 1_000_000


def change_user(site: Site, **values: object) -> None:
    """Give the administrator other `values`."""

    def changed(directory: Directory) -> Directory:
        user: User = msgspec.structs.replace(directory.users["id-ada"], **values)
        return directory.with_user(user)

    site.users.change(changed)


@pytest.mark.parametrize(
    "lose_rights", [log_out, remove_user, disable_user, take_every_role, remove_project, let_token_expire]
)
def test_stream_ends_with_the_login_and_tells_nothing_more(
    fleet: ComputeFleet, site: Site, time: Time, lose_rights: LoseRights, is_busy: bool
) -> None:
    token = site.log_in("ada")

    async def scenario() -> None:
        async with stream(site.api, "all_tenants=1", {"X-Auth-Token": token}) as watch:
            await watch.next()
            theirs = create(fleet, OTHER)
            assert await watch.told() == ("changed", theirs)
            await lose_rights(site, token, time)
            if is_busy:
                create(fleet, OTHER)
            await assert_ends(watch, NOT_ACCEPTED)

    site.api.run(scenario())


def test_stream_of_an_administrator_ends_when_the_role_is_lost_and_another_one_stays(
    fleet: ComputeFleet, site: Site, is_busy: bool
) -> None:
    token = site.log_in("ada")

    async def scenario() -> None:
        async with stream(site.api, "all_tenants=1", {"X-Auth-Token": token}) as watch:
            await watch.next()
            change_user(site, roles={DEMO: ("member",)})
            if is_busy:
                create(fleet, OTHER)
            await assert_ends(watch, "the role admin is lost")

    site.api.run(scenario())


def test_stream_goes_on_when_a_role_is_gained_or_another_login_ends(fleet: ComputeFleet, site: Site) -> None:
    change_user(site, roles={DEMO: ("member",)})
    token, other = site.log_in("ada"), site.log_in("ada")

    async def scenario() -> None:
        async with stream(site.api, "", {"X-Auth-Token": token}) as watch:
            await watch.next()
            change_user(site, roles={DEMO: ("member", "admin")})
            await site.api.ask("DELETE", TOKENS, {"X-Auth-Token": other, "X-Subject-Token": other})
            mine = create(fleet, DEMO)
            assert await watch.told() == ("changed", mine)

    site.api.run(scenario())


def test_stream_that_goes_on_from_an_id_tells_nothing_after_its_rights_are_lost(
    fleet: ComputeFleet, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = site.log_in("ada")
    lost = asyncio.Event()

    async def scenario() -> None:
        async with stream(site.api, "all_tenants=1", {"X-Auth-Token": token}) as watch:
            await watch.next()
        create(fleet, OTHER)
        replay = site.api.services.feed.replay

        async def replay_after_the_loss(cell_uuid: str, after: Position) -> ChangelogReading | ResetReason:
            if not lost.is_set():
                lost.set()
                change_user(site, roles={DEMO: ("reader",)})
            return await replay(cell_uuid, after)

        monkeypatch.setattr(site.api.services.feed, "replay", replay_after_the_loss)
        async with stream(site.api, "all_tenants=1", {"X-Auth-Token": token}, last_id=watch.last_id) as again:
            assert (await again.next()).name == "ready"
            await assert_ends(again, "the role admin is lost")

    site.api.run(scenario())


def basic(name: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + b64encode(f"{name}:{password}".encode()).decode()}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", NOT_ACCEPTED),
        ("ada:{other_hash}:demo:admin\n", NOT_ACCEPTED),
        ("ada:{same_hash}:demo:member\n", "the role admin is lost"),
        (
            "ada:{same_hash}:other:admin\n",
            "the credentials that the stream was opened with are for another project now",
        ),
    ],
)
def test_stream_ends_with_the_line_of_the_password_file(
    fleet: ComputeFleet, tmp_path: Path, line: str, reason: str, is_busy: bool
) -> None:
    file, hashed = tmp_path / "htpasswd", weak_hash("ada's")
    bob = f"bob:{weak_hash('his')}:demo:member\n"
    file.write_text(f"ada:{hashed}:demo:admin\n{bob}")
    api = fleet.api(identity=BasicIdentity(file))

    async def scenario() -> None:
        async with stream(api, "all_tenants=1", basic("ada", "ada's")) as watch:
            await watch.next()
            file.write_text(line.format(same_hash=hashed, other_hash=weak_hash("another")) + bob)
            if is_busy:
                create(fleet, OTHER)
            await assert_ends(watch, reason)

    api.run(scenario())


def test_password_is_not_checked_again_for_a_stream_that_goes_on(
    fleet: ComputeFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even when the file has changed, which would take seconds with many streams."""
    checked = []
    is_password_of = PasswordChecks.is_password_of

    async def counted(self: PasswordChecks, hashed: str | None, password: str) -> bool:
        checked.append(password)
        return await is_password_of(self, hashed, password)

    monkeypatch.setattr(PasswordChecks, "is_password_of", counted)
    file = tmp_path / "htpasswd"
    line = f"ada:{weak_hash('right')}:demo:admin\n"
    file.write_text(line)
    api = fleet.api(identity=BasicIdentity(file))

    async def scenario() -> None:
        async with stream(api, "", basic("ada", "right")) as watch:
            await watch.next()
            for number in range(3):
                file.write_text("# changed\n" * (number + 1) + line)
                uuid = create(fleet, DEMO)
                assert await watch.told() == ("changed", uuid)

    api.run(scenario())
    assert checked == ["right"]


class Faulty(ProgramsOnly):
    """An identity service that answers while `error` is None."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.asked = 0

    async def authenticate(self, headers: Mapping[str, str], connection: ClientConnection = UNKNOWN) -> Caller:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return Caller("ada", DEMO, frozenset({"admin"}))


@pytest.mark.parametrize(
    "error",
    [DirectoryUnavailableError(Path("users"), "gone"), IdentityServiceError("does not answer"), TooManyLoginsError(5)],
)
def test_nothing_is_told_while_rights_cannot_be_looked_up_and_all_of_it_afterwards(
    fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr("fleetlight.api.identity.rights._RETRY_S", 0.01)
    identity = Faulty()
    api = fleet.api(identity=identity)

    async def scenario() -> None:
        async with stream(api) as watch:
            await watch.next()
            identity.error = error
            uuid = create(fleet, DEMO)
            asked = identity.asked
            await eventually(lambda: identity.asked > asked + 5)
            assert watch.is_silent
            identity.error = None
            assert await watch.told() == ("changed", uuid)

    api.run(scenario())


def test_stream_ends_when_rights_cannot_be_looked_up_for_long(
    fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetlight.api.identity.rights._TIMEOUT_S", 0.05)
    identity = Faulty()
    api = fleet.api(identity=identity)

    async def scenario() -> None:
        async with stream(api) as watch:
            await watch.next()
            identity.error = IdentityServiceError("does not answer")
            create(fleet, DEMO)
            await assert_ends(watch, "the rights of the reader cannot be looked up")

    api.run(scenario())

"""Many logins at once, wrong ones above all, and those of others meanwhile (`tokens` and `basic`)."""

import asyncio
from base64 import b64encode
from pathlib import Path

import httpx
import msgspec
import pytest

from fleetlight.api.identity.basic import BasicIdentity
from fleetlight.api.identity.passwords import PasswordChecks
from fleetlight.api.limits.login_limit import CHECKS_AT_ONCE, MOST_WAITING_OF_ADDRESS
from tests.contract.compute_fleet import Api, ComputeFleet
from tests.contract.identity_site import TOKENS, Site
from tests.support.callers import ELSEWHERE, HeldChecks, asked_flows, client_at, hang_up
from tests.support.fleets.identity import PASSWORD, password_login, project_scope, weak_hash
from tests.support.waiting import eventually

FLOOD = 200
SERVERS = "/v2.1/servers"
_MOST_CHECKED = MOST_WAITING_OF_ADDRESS + CHECKS_AT_ONCE


@pytest.fixture
def site(fleet: ComputeFleet, tmp_path: Path) -> Site:
    return Site(fleet, tmp_path)


@pytest.fixture
def basic(fleet: ComputeFleet, tmp_path: Path) -> Api:
    path = tmp_path / "htpasswd"
    path.write_text(f"bob:{weak_hash(PASSWORD)}:demo:member\n")
    return fleet.api(identity=BasicIdentity(path))


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> HeldChecks:
    checks = HeldChecks(PASSWORD)

    async def is_password_of(_self: PasswordChecks, hashed: str | None, password: str) -> bool:
        return await checks.is_password_of(hashed, password)

    monkeypatch.setattr(PasswordChecks, "is_password_of", is_password_of)
    return checks


def with_password(name: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + b64encode(f"{name}:{password}".encode()).decode()}


async def log_in(client: httpx.AsyncClient, name: str, password: str, strategy: str) -> httpx.Response:
    if strategy == "basic":
        return await client.get(SERVERS, headers=with_password(name, password))
    return await client.post(TOKENS, json=password_login(name, password, project_scope()))


@pytest.mark.parametrize("strategy", ["tokens", "basic"])
def test_right_login_gets_through_a_flood_of_wrong_ones_under_invented_names(
    site: Site, basic: Api, checks: HeldChecks, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    api = basic if strategy == "basic" else site.api
    flows = asked_flows(monkeypatch)

    async def story() -> None:
        async with client_at(api.app, "192.0.2.66") as flooding, client_at(api.app, ELSEWHERE) as bob:
            flood = [asyncio.create_task(log_in(flooding, f"x{n}", "wrong", strategy)) for n in range(FLOOD)]
            # All but those who may wait are refused while not one check is done.
            await eventually(lambda: sum(each.done() for each in flood) == FLOOD - _MOST_CHECKED)
            assert checks.checked == ["wrong"] * CHECKS_AT_ONCE
            right = asyncio.create_task(log_in(bob, "bob", PASSWORD, strategy))
            await eventually(lambda: len(flows) == 2)
            checks.release()
            assert (await right).is_success
            # Before it: those under way when it came, and one of the flood.
            assert checks.checked.index(PASSWORD) <= CHECKS_AT_ONCE + 1
            answers = await asyncio.gather(*flood)
        refused = [answer for answer in answers if answer.status_code == 429]
        assert len(refused) == FLOOD - _MOST_CHECKED
        assert {answer.headers["Retry-After"] for answer in refused} == {"2"}
        assert {answer.status_code for answer in answers} == {401, 429}

    api.run(story())


def test_wrong_passwords_from_elsewhere_lock_no_user_out(site: Site) -> None:
    async def story() -> None:
        async with client_at(site.api.app, "192.0.2.66") as guessing, client_at(site.api.app, ELSEWHERE) as bob:
            answers = [await log_in(guessing, "bob", "wrong", "tokens") for _ in range(11)]
            assert [answer.status_code for answer in answers] == [401] * 10 + [429]
            assert (await log_in(guessing, "bob", PASSWORD, "tokens")).status_code == 429
            assert (await log_in(bob, "bob", PASSWORD, "tokens")).status_code == 201

    site.api.run(story())


@pytest.mark.parametrize("strategy", ["tokens", "basic"])
def test_password_of_a_caller_who_hung_up_is_not_checked(
    site: Site, basic: Api, checks: HeldChecks, strategy: str
) -> None:
    api = basic if strategy == "basic" else site.api
    body = msgspec.json.encode(password_login("bob", "left", project_scope()))

    async def story() -> None:
        async with client_at(api.app, "192.0.2.66") as client:
            busy = [asyncio.create_task(log_in(client, f"x{n}", "wrong", strategy)) for n in range(CHECKS_AT_ONCE)]
            await eventually(lambda: len(checks.checked) == CHECKS_AT_ONCE)
            if strategy == "basic":
                status = await hang_up(api.app, "GET", SERVERS, headers=with_password("bob", "left"))
            else:
                status = await hang_up(api.app, "POST", TOKENS, body=body)
            assert status == 400
            checks.release()
            await asyncio.gather(*busy)
            assert "left" not in checks.checked

    api.run(story())


def test_body_that_came_while_its_caller_waited_for_a_login_is_all_there(
    basic: Api, checks: HeldChecks, monkeypatch: pytest.MonkeyPatch
) -> None:
    flows = asked_flows(monkeypatch)
    keypair = {"keypair": {"name": "waited"}}

    async def story() -> None:
        async with client_at(basic.app, "192.0.2.66") as client, client_at(basic.app, ELSEWHERE) as bob:
            busy = [asyncio.create_task(log_in(client, f"x{n}", "wrong", "basic")) for n in range(CHECKS_AT_ONCE)]
            await eventually(lambda: len(checks.checked) == CHECKS_AT_ONCE)
            headers = with_password("bob", PASSWORD)
            waiting = asyncio.create_task(bob.post("/v2.1/os-keypairs", headers=headers, json=keypair))
            await eventually(lambda: len(flows) == 2)
            checks.release()
            answer = await waiting
            await asyncio.gather(*busy)
        assert answer.status_code == 200, answer.text
        assert answer.json()["keypair"]["name"] == "waited"

    basic.run(story())

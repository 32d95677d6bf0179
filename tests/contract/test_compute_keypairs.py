"""Key pairs of users, by microversion."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tests.contract.compute_fleet import Api, ComputeFleet, microversion

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ ada@example.org"
ADA = {"X-User-Id": "ada", "X-Roles": "member"}
BOB = {"X-User-Id": "bob", "X-Roles": "reader"}
ROOT = {"X-User-Id": "root", "X-Roles": "admin"}
BRIEF = {"name", "public_key", "fingerprint"}
SHOWN = BRIEF | {"user_id", "id", "created_at", "updated_at", "deleted", "deleted_at"}


@pytest.fixture
def api(fleet: ComputeFleet, api: Api) -> Iterator[Api]:
    yield api
    for user in ("ada", "bob", "root"):
        for keypair in fleet.fleet.keypairs.page(user, limit=1000):
            fleet.fleet.keypairs.remove(user, keypair.name)


def create(api: Api, version: str = "2.1", user: dict[str, str] = ADA, **values: Any) -> httpx.Response:
    body = {"keypair": {"name": "laptop", "public_key": KEY} | values}
    return api.request("POST", "/v2.1/os-keypairs", user | microversion(version), json=body)


@pytest.mark.parametrize(
    ("version", "created", "deleted", "types"), [("2.1", 200, 202, set()), ("2.2", 201, 204, {"type"})]
)
def test_keypair_has_exactly_the_keys_of_the_microversion(
    api: Api, version: str, created: int, deleted: int, types: set[str]
) -> None:
    asked = microversion(version)
    answer = create(api, version)
    assert answer.status_code == created
    assert set(answer.json()["keypair"]) == BRIEF | {"user_id"} | types
    (listed,) = api.get("/v2.1/os-keypairs", ADA, asked).json()["keypairs"]
    assert set(listed["keypair"]) == BRIEF | types
    shown = api.get("/v2.1/os-keypairs/laptop", ADA, asked).json()["keypair"]
    assert set(shown) == SHOWN | types
    assert (shown["deleted"], shown["user_id"]) == (False, "ada")
    assert api.request("DELETE", "/v2.1/os-keypairs/laptop", ADA | asked).status_code == deleted
    assert api.get("/v2.1/os-keypairs/laptop", ADA).status_code == 404
    assert api.request("DELETE", "/v2.1/os-keypairs/laptop", ADA).status_code == 404


def test_private_half_of_a_generated_key_is_given_out_once(api: Api) -> None:
    body = {"keypair": {"name": "new"}}
    keypair = api.request("POST", "/v2.1/os-keypairs", ADA, json=body).json()["keypair"]
    assert load_pem_private_key(keypair["private_key"].encode(), None)
    assert keypair["public_key"].startswith("ssh-rsa ")
    assert "private_key" not in api.get("/v2.1/os-keypairs/new", ADA).json()["keypair"]


@pytest.mark.parametrize(
    ("version", "values", "status"),
    [
        ("2.1", {"name": "a b-_1"}, 200),
        ("2.1", {"name": "a@b.c"}, 400),
        ("2.91", {"name": "a@b.c"}, 400),
        ("2.92", {"name": "a@b.c"}, 201),
        ("2.1", {"name": " a"}, 400),
        ("2.1", {"name": ""}, 400),
        ("2.1", {"name": "x" * 256}, 400),
        ("2.1", {"type": "ssh"}, 400),
        ("2.2", {"type": "pgp"}, 400),
        ("2.2", {"type": "x509"}, 400),
        ("2.9", {"user_id": "ada"}, 400),
        ("2.10", {"user_id": "ada"}, 201),
        ("2.10", {"user_id": "bob"}, 403),
        ("2.1", {"public_key": "no key"}, 400),
        ("2.92", {"public_key": None}, 400),
        ("2.1", {"public_key": None}, 400),
        ("2.10", {"user_id": None}, 400),
        ("2.10", {"user_id": ""}, 201),
        ("2.10", {"user_id": "bob smith"}, 403),
    ],
)
def test_new_keypair_is_validated(api: Api, version: str, values: dict[str, Any], status: int) -> None:
    assert create(api, version, **values).status_code == status


def test_public_key_is_required_from_2_92(api: Api) -> None:
    body = {"keypair": {"name": "new"}}
    assert api.request("POST", "/v2.1/os-keypairs", ADA | microversion("2.92"), json=body).status_code == 400


def test_name_is_taken_once_for_each_user(api: Api) -> None:
    assert create(api).status_code == 200
    assert create(api).status_code == 409
    assert create(api, user=BOB).status_code == 200


def test_administrators_see_keypairs_of_other_users_from_2_10(api: Api) -> None:
    create(api)
    url = "/v2.1/os-keypairs?user_id=ada"
    assert api.get(url, ROOT, microversion("2.9")).json()["keypairs"] == []
    assert len(api.get(url, ROOT, microversion("2.10")).json()["keypairs"]) == 1
    assert api.get(url, BOB, microversion("2.10")).status_code == 403
    assert api.get("/v2.1/os-keypairs?user_id=", BOB, microversion("2.10")).json()["keypairs"] == []
    shown = api.get("/v2.1/os-keypairs/laptop?user_id=ada", ROOT, microversion("2.10"))
    assert shown.json()["keypair"]["user_id"] == "ada"
    delete = "/v2.1/os-keypairs/laptop?user_id=ada"
    assert api.request("DELETE", delete, BOB | microversion("2.10")).status_code == 403
    assert api.request("DELETE", delete, ROOT | microversion("2.10")).status_code == 204


@pytest.mark.parametrize(("method", "status"), [("GET", 200), ("DELETE", 204)])
def test_one_keypair_has_no_pages(api: Api, method: str, status: int) -> None:
    create(api)
    url = "/v2.1/os-keypairs/laptop"
    assert api.request(method, f"{url}?limit=1", ADA | microversion("2.75")).status_code == 400
    assert api.request(method, f"{url}?limit=1", ADA | microversion("2.74")).status_code == status


def test_keypairs_have_pages_from_2_35(api: Api) -> None:
    for name in ("c", "a", "b"):
        create(api, name=name)
    asked = microversion("2.35")
    first = api.get("/v2.1/os-keypairs?limit=2", ADA, asked).json()
    assert [item["keypair"]["name"] for item in first["keypairs"]] == ["a", "b"]
    second = api.get(first["keypairs_links"][0]["href"], ADA, asked).json()
    assert [item["keypair"]["name"] for item in second["keypairs"]] == ["c"]
    assert "keypairs_links" not in second
    assert api.get("/v2.1/os-keypairs?marker=x", ADA, asked).status_code == 400
    assert len(api.get("/v2.1/os-keypairs?limit=2", ADA, microversion("2.34")).json()["keypairs"]) == 3
    assert api.get("/v2.1/os-keypairs?color=red", ADA, microversion("2.75")).status_code == 400


def test_keypairs_are_limited_by_quota(api: Api, fleet: ComputeFleet) -> None:
    fleet.fleet.quotas.set_limits("demo", {"key_pairs": 1})
    assert create(api).status_code == 200
    refused = create(api, name="second")
    assert refused.status_code == 403
    assert "Quota exceeded for key_pairs" in refused.json()["forbidden"]["message"]
    fleet.fleet.quotas.reset("demo")

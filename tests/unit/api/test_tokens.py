"""Which tokens are good, and what they give: by a directory and a clock, without a server."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from joserfc import jwt
from joserfc.jwk import OctKey

from fleetlight.api.http.errors import DirectoryError, TooManyCredentialsError, UnknownInDirectoryError
from fleetlight.api.identity.tokens.directory import MOST_REVOKED, Credential, Directory, Project, User
from fleetlight.api.identity.tokens.login import Logins, caller_of, roles_of
from fleetlight.api.identity.tokens.token import Token, new_audit_id, sign, signed_token

NOW = 1_790_000_000_000_000
KEY = "00ff" * 16
ADA = User(id="id-ada", name="ada", password_hash="", roles={"demo": ("member",), "other": ("admin",)})
BOB = User(id="id-bob", name="bob", password_hash="", default_project_id="demo")
DEMO, OTHER = Project(id="demo", name="Demo"), Project(id="other", name="Other")
BACKUP = Credential(
    id="c1", user_id="id-ada", project_id="demo", name="backup", secret_hash="", roles=("reader",), expires_at=NOW + 5
)
DIRECTORY = Directory(
    signing_key=KEY,
    projects={each.id: each for each in (DEMO, OTHER)},
    users={each.id: each for each in (ADA, BOB)},
    credentials={"c1": BACKUP},
)
TOKEN = Token("id-ada", ("password",), "demo", NOW - 10, NOW + 10, ("last", "first"))
LOGINS = Logins(lifetime_s=60, clock=lambda: NOW)


def changed(**values: Any) -> Directory:
    """The directory with other values of ada."""
    return DIRECTORY.with_user(msgspec.structs.replace(ADA, **values))


@pytest.mark.parametrize(
    ("directory", "token", "is_good"),
    [
        (DIRECTORY, TOKEN, True),
        (DIRECTORY, replace(TOKEN, expires_at=NOW + 1), True),
        (DIRECTORY, replace(TOKEN, expires_at=NOW), False),
        (DIRECTORY, replace(TOKEN, user_id="id-eve"), False),
        (DIRECTORY, replace(TOKEN, project_id=None), True),
        (DIRECTORY, replace(TOKEN, project_id="nope"), False),
        (DIRECTORY, replace(TOKEN, user_id="id-bob"), False),
        (changed(enabled=False), TOKEN, False),
        (changed(valid_from=NOW - 10), TOKEN, True),
        (changed(valid_from=NOW - 9), TOKEN, False),
        (changed(revoked={"last": NOW + 1}), TOKEN, False),
        (changed(revoked={"first": NOW + 1}), TOKEN, False),
        (changed(revoked={"another": NOW + 1}), TOKEN, True),
        (DIRECTORY, replace(TOKEN, credential_id="c1"), True),
        (DIRECTORY, replace(TOKEN, credential_id="c2"), False),
        (DIRECTORY.without_credential(BACKUP), replace(TOKEN, credential_id="c1"), False),
    ],
)
def test_token_is_good_while_it_and_all_that_it_names_are(directory: Directory, token: Token, is_good: bool) -> None:
    assert LOGINS.is_good(directory, token) is is_good
    text = sign(token, KEY)
    assert LOGINS.token_of(directory, text) == (token if is_good else None)
    assert Logins(lifetime_s=60, clock=lambda: token.expires_at).token_of(directory, text) is None


@pytest.mark.parametrize(("expires_at", "is_good"), [(NOW, False), (NOW + 1, True), (None, True)])
def test_token_of_an_application_credential_dies_with_it(expires_at: int | None, is_good: bool) -> None:
    credential = msgspec.structs.replace(BACKUP, expires_at=expires_at)
    directory = DIRECTORY.without_credential(BACKUP).with_credential(credential)
    assert LOGINS.is_good(directory, replace(TOKEN, credential_id="c1")) is is_good


def test_token_gives_the_roles_of_its_project_and_a_credential_no_more_than_it_was_given() -> None:
    assert roles_of(DIRECTORY, TOKEN) == {"member", "reader"}
    assert roles_of(DIRECTORY, replace(TOKEN, credential_id="c1")) == {"reader"}
    for without in ({"project_id": None}, {"user_id": "id-bob"}, {"user_id": "id-eve"}, {"credential_id": "c2"}):
        assert roles_of(DIRECTORY, replace(TOKEN, **without)) == frozenset()
    caller = caller_of(DIRECTORY, TOKEN)
    assert (caller.user_id, caller.project_id, caller.has_role("member")) == ("id-ada", "demo", True)
    assert not caller.has_role("manager")


def test_new_token_lives_from_the_next_whole_second_on() -> None:
    logins = Logins(lifetime_s=60, clock=lambda: NOW + 1)
    token = logins.token_for(ADA, DEMO)
    assert (token.issued_at, token.expires_at) == (NOW + 1, NOW + 61_000_000)
    assert (token.user_id, token.project_id, token.methods, token.credential_id) == (
        "id-ada",
        "demo",
        ("password",),
        None,
    )
    assert len(token.audit_ids) == 1
    assert LOGINS.token_for(ADA, None).expires_at == NOW + 60_000_000
    assert LOGINS.token_for(ADA, None).project_id is None


def test_text_of_a_token_keeps_all_of_it_and_is_good_for_nothing_under_another_key() -> None:
    token = replace(TOKEN, methods=("password", "token"), credential_id="c1", project_id=None)
    assert signed_token(sign(token, KEY), KEY) == token
    assert signed_token(sign(token, KEY), KEY[::-1]) is None
    assert len({new_audit_id() for _ in range(100)}) == 100
    assert len(new_audit_id()) == 22


@pytest.mark.parametrize("text", ["", "x", "a.b.c"])
def test_text_that_is_no_token_is_none(text: str) -> None:
    assert signed_token(text, KEY) is None


def test_signature_of_another_algorithm_or_other_claims_is_refused() -> None:
    key = OctKey.import_key(bytes.fromhex(KEY))
    claims: dict[str, Any] = {"sub": "id-ada", "methods": ["password"], "project": "demo", "issued": 1, "expires": 2}
    whole = claims | {"audit": ["a"], "credential": None}
    assert signed_token(jwt.encode({"alg": "HS256"}, whole, key), KEY) is not None
    assert signed_token(jwt.encode({"alg": "HS512"}, whole, key, algorithms=["HS512"]), KEY) is None
    assert signed_token(jwt.encode({"alg": "HS256"}, claims, key), KEY) is None


def test_project_goes_with_the_roles_in_it_and_the_credentials_for_it() -> None:
    kept = msgspec.structs.replace(BACKUP, id="c2", project_id="other", name="kept")
    left = DIRECTORY.with_credential(kept).without_project(DEMO)
    assert (set(left.projects), set(left.credentials)) == ({"other"}, {"c2"})
    assert left.users["id-ada"].roles == {"other": ("admin",)}
    assert left.users["id-bob"].default_project_id is None
    assert DIRECTORY.without_project(OTHER).users["id-bob"].default_project_id == "demo"


def test_user_goes_with_the_credentials_of_the_user() -> None:
    of_bob = msgspec.structs.replace(BACKUP, id="c2", user_id="id-bob")
    left = DIRECTORY.with_credential(of_bob).without_user(ADA)
    assert (set(left.users), set(left.credentials)) == ({"id-bob"}, {"c2"})


def test_user_and_project_are_found_by_name_and_by_id() -> None:
    assert DIRECTORY.named_user("ada") is DIRECTORY.named_user("id-ada") is ADA
    assert DIRECTORY.named_project("Demo") is DIRECTORY.named_project("demo") is DEMO
    for find, kind in ((DIRECTORY.named_user, "user"), (DIRECTORY.named_project, "project")):
        with pytest.raises(UnknownInDirectoryError, match=f"there is no {kind} nobody"):
            find("nobody")


@pytest.mark.parametrize(("identifier", "name"), [("demo", "new"), ("new", "Demo")])
def test_name_and_id_of_a_project_are_its_own(identifier: str, name: str) -> None:
    with pytest.raises(DirectoryError, match=f"there is a project {name} already"):
        DIRECTORY.with_project(Project(id=identifier, name=name))


@pytest.mark.parametrize(("identifier", "name"), [("id-ada", "new"), ("new", "ada")])
def test_name_and_id_of_a_user_are_the_users_own(identifier: str, name: str) -> None:
    with pytest.raises(DirectoryError, match=f"there is a user {name} already"):
        DIRECTORY.with_new_user(User(id=identifier, name=name, password_hash=""))


def test_new_project_is_found_and_has_users_with_a_role_in_it() -> None:
    new = Project(id="new", name="New")
    directory = DIRECTORY.with_project(new).with_role(BOB, new, "reader")
    assert directory.named_project("New") is new
    assert directory.roles_of(directory.users["id-bob"], new) == {"reader"}
    assert set(directory.projects) == {"demo", "other", "new"}


def test_roles_are_given_and_taken_one_by_one() -> None:
    both = DIRECTORY.with_role(ADA, DEMO, "reader")
    assert set(both.users["id-ada"].roles["demo"]) == {"member", "reader"}
    one = both.without_role(both.users["id-ada"], DEMO, "member")
    assert one.users["id-ada"].roles == {"demo": ("reader",), "other": ("admin",)}
    assert one.without_role(one.users["id-ada"], DEMO, "reader").users["id-ada"].roles == {"other": ("admin",)}
    with pytest.raises(DirectoryError, match="user ada has not the role reader in project Demo"):
        DIRECTORY.without_role(ADA, DEMO, "reader")
    with pytest.raises(UnknownInDirectoryError, match="there is no role boss; the roles are "):
        DIRECTORY.with_role(ADA, DEMO, "boss")


@pytest.mark.parametrize("values", [{"user_id": "id-eve"}, {"project_id": "nope"}])
def test_credential_of_who_is_gone_is_refused(values: dict[str, str]) -> None:
    with pytest.raises(UnknownInDirectoryError, match="not there any more"):
        DIRECTORY.with_credential(msgspec.structs.replace(BACKUP, id="c2", name="new", **values))


def test_credentials_of_a_user_have_names_of_their_own_and_a_limit() -> None:
    with pytest.raises(DirectoryError, match="there is an application credential backup already"):
        DIRECTORY.with_credential(msgspec.structs.replace(BACKUP, id="c2"))
    DIRECTORY.require_room_for_credential("id-ada", 2)
    DIRECTORY.require_room_for_credential("id-bob", 1)
    with pytest.raises(TooManyCredentialsError):
        DIRECTORY.require_room_for_credential("id-ada", 1)


def test_revoked_tokens_are_remembered_until_they_expire_and_no_more_than_a_file_holds() -> None:
    directory = changed(revoked={"old": NOW, "young": NOW + 1})
    revoked = directory.with_revoked("id-bob", "new", NOW + 7, NOW)
    assert revoked.users["id-ada"].revoked == {"young": NOW + 1}
    assert revoked.users["id-bob"].revoked == {"new": NOW + 7}
    assert revoked.has_revoked("id-bob", ("new",))
    assert not revoked.has_revoked("id-ada", ("new",))
    assert revoked.with_revoked("id-eve", "any", NOW + 7, NOW) == revoked

    full = changed(revoked={f"{number}": NOW + 9 for number in range(MOST_REVOKED)}, valid_from=3)
    emptied = full.with_revoked("id-ada", "one more", NOW + 7, NOW).users["id-ada"]
    assert (emptied.revoked, emptied.valid_from) == ({}, NOW + 1)

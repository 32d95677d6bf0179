"""`fleetlight identity`: what it changes in the file of users, and what it refuses."""

import json
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fleetlight.api.identity.passwords import is_password_of
from fleetlight.api.identity.tokens.directory import Directory
from fleetlight.api.identity.tokens.directory_file import DirectoryFile
from fleetlight.api.identity.tokens.login import Logins
from fleetlight.cli.app import app
from tests.unit.cli.conftest import Run


@pytest.fixture(autouse=True)
def users_file(empty_place: Path) -> Path:
    file = empty_place / "identity.json"
    (empty_place / "fleetlight.toml").write_text(
        f'[fleet]\ndatabase_url = "sqlite:///{empty_place}/fleet.db"\n[identity]\nfile = "{file}"\n'
    )
    return file


def run_with_input(text: str, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["identity", *arguments], input=text, catch_exceptions=False)


def identity(run: Run, *arguments: str) -> str:
    """Runs a command that must succeed; returns what it prints."""
    result = run("identity", *arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout


@pytest.fixture
def ada(run: Run) -> str:
    """A user with the role member in project demo."""
    identity(run, "project", "add", "demo", "--id", "d-e-m-o")
    result = run_with_input("first password\nsecond line\n", "user", "add", "ada", "--project", "demo")
    assert result.exit_code == 0, result.stderr
    return "ada"


def read(file: Path) -> Directory:
    return DirectoryFile(file).read()


def test_the_file_is_made_with_the_first_project_and_only_its_owner_reads_it(run: Run, users_file: Path) -> None:
    identity(run, "project", "add", "demo")
    assert stat.S_IMODE(users_file.stat().st_mode) == 0o600
    assert [project.name for project in read(users_file).projects.values()] == ["demo"]


def test_a_new_user_has_the_first_line_of_the_input_as_password(users_file: Path, ada: str) -> None:
    user = read(users_file).named_user(ada)
    assert is_password_of(user.password_hash, "first password")
    assert user.password_hash.startswith("$argon2id$")
    assert user.roles == {"d-e-m-o": ("member",)}
    assert user.default_project_id == "d-e-m-o"


def test_a_new_password_makes_tokens_void(run: Run, users_file: Path, ada: str) -> None:
    token = identity(run, "token", ada).strip()
    logins = Logins(lifetime_s=60)
    assert logins.token_of(read(users_file), token) is not None
    result = run_with_input("another\n", "user", "set-password", ada)
    assert result.exit_code == 0, result.stderr
    directory = read(users_file)
    assert is_password_of(directory.named_user(ada).password_hash, "another")
    assert logins.token_of(directory, token) is None


@pytest.mark.parametrize(
    ("written", "said", "kept"),
    [
        ("      username: ada\n      password: old\n", "clouds.yaml: has it too", 'password: "another"'),
        ("      password: old\n      username: ada\n", "still has the old password of ada", "password: old"),
        ("      username: bob\n      password: old\n", "ada: has a new password", "password: old"),
    ],
)
def test_new_password_reaches_clouds_yaml_or_that_is_said_to_be_old(
    empty_place: Path, ada: str, written: str, said: str, kept: str
) -> None:
    clouds = empty_place / "clouds.yaml"
    clouds.write_text(f"clouds:\n  fleetlight:\n    auth:\n{written}")
    result = run_with_input("another\n", "user", "set-password", ada)
    assert result.exit_code == 0
    assert said in " ".join(result.output.split())
    assert kept in clouds.read_text()


def test_lists_show_users_roles_and_credentials_and_no_secret(run: Run, ada: str) -> None:
    identity(run, "role", "add", ada, "--project", "demo", "--role", "reader")
    made = identity(run, "credential", "add", ada, "backup", "--project", "demo", "--role", "reader")
    secret = made.split("secret: ")[1].strip()
    (user,) = json.loads(identity(run, "user", "list", "--output", "json"))
    assert (user["name"], user["enabled"], user["default_project"]) == (ada, True, "demo")
    given = json.loads(identity(run, "role", "list", "--user", ada, "--output", "json"))
    assert [(each["project"], each["role"]) for each in given] == [("demo", "member"), ("demo", "reader")]
    (credential,) = json.loads(identity(run, "credential", "list", "--output", "json"))
    assert (credential["name"], credential["user"], credential["roles"]) == ("backup", ada, ["reader"])
    for kind in ("user", "project", "role", "credential"):
        table = identity(run, kind, "list")
        assert ada in table or kind == "project"
        assert secret not in table
        assert "$argon2" not in table


def test_what_is_removed_takes_with_it_what_depends_on_it(run: Run, users_file: Path, ada: str) -> None:
    identity(run, "credential", "add", ada, "backup", "--project", "demo")
    identity(run, "project", "remove", "demo")
    directory = read(users_file)
    assert (directory.projects, directory.credentials) == ({}, {})
    assert (directory.named_user(ada).roles, directory.named_user(ada).default_project_id) == ({}, None)
    identity(run, "user", "remove", ada)
    assert read(users_file).users == {}


def test_a_role_and_a_credential_can_be_taken_away(run: Run, users_file: Path, ada: str) -> None:
    made = identity(run, "credential", "add", ada, "backup", "--project", "demo")
    identity(run, "credential", "remove", made.split("\n")[0].removeprefix("id: "))
    identity(run, "role", "remove", ada, "--project", "demo", "--role", "member")
    directory = read(users_file)
    assert (directory.credentials, directory.named_user(ada).roles) == ({}, {})


@pytest.mark.parametrize("change", ["add", "remove"])
@pytest.mark.parametrize(
    "said",
    [("demo", "member"), ("--project", "demo"), ("--role", "member"), ("--project", "demo", "member")],
    ids=" ".join,
)
def test_project_and_role_of_a_change_are_named(
    run: Run, users_file: Path, ada: str, change: str, said: tuple[str, ...]
) -> None:
    before = users_file.read_bytes()
    assert run("identity", "role", change, ada, *said).exit_code == 2
    assert users_file.read_bytes() == before


def test_user_without_a_default_project_is_told_to_name_one(run: Run, ada: str) -> None:
    identity(run, "project", "remove", "demo")
    refused = run("identity", "token", ada)
    assert refused.exit_code == 2
    assert f"user {ada} has no default project: name one with --project" in refused.stderr.replace("\n", " ")


def test_a_disabled_user_gets_no_token_until_enabled_again(run: Run, ada: str) -> None:
    identity(run, "user", "disable", ada)
    assert run("identity", "token", ada).exit_code == 1
    identity(run, "user", "enable", ada)
    assert identity(run, "token", ada).count(".") == 2


@pytest.mark.parametrize(
    ("arguments", "said", "exit_code"),
    [
        (("user", "add", "ada"), "there is a user ada already", 1),
        (("user", "add", "bob", "--project", "none"), "there is no project none", 2),
        (("user", "add", "bob", "--project", "demo", "--role", "king"), "there is no role king", 2),
        (("user", "remove", "bob"), "there is no user bob", 2),
        (("user", "set-password", "bob"), "there is no user bob", 2),
        (("project", "add", "demo"), "there is a project demo already", 1),
        (("project", "add", "other", "--id", "d-e-m-o"), "there is a project other already", 1),
        (("role", "remove", "ada", "--project", "demo", "--role", "admin"), "has not the role admin", 1),
        (("role", "remove", "ada", "--project", "demo", "--role", "king"), "there is no role king", 2),
        (
            ("credential", "add", "ada", "x", "--project", "demo", "--role", "admin"),
            "does not have all of these roles",
            1,
        ),
        (("credential", "add", "ada", "x", "--project", "demo", "--role", "king"), "there is no role king", 2),
        (("credential", "remove", "none"), "there is no application credential none", 2),
        (("token", "ada", "--project", "none"), "there is no project none", 2),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(
    users_file: Path, ada: str, arguments: tuple[str, ...], said: str, exit_code: int
) -> None:
    before = users_file.read_bytes()
    result = run_with_input("password\n", *arguments)
    assert result.exit_code == exit_code
    assert said in result.stderr.replace("\n", " ")
    assert users_file.read_bytes() == before


def test_an_empty_password_is_refused(users_file: Path, ada: str) -> None:
    result = run_with_input("\n", "user", "set-password", ada)
    assert result.exit_code == 2
    assert "a password is needed" in result.stderr
    assert is_password_of(read(users_file).named_user(ada).password_hash, "first password")


def test_without_a_file_in_the_configuration_the_key_is_named(run: Run, empty_place: Path) -> None:
    (empty_place / "fleetlight.toml").write_text('[fleet]\ndatabase_url = "sqlite:///fleet.db"\n')
    result = run("identity", "user", "list")
    assert result.exit_code == 2
    assert "identity.file (FLEETLIGHT_IDENTITY_FILE)" in result.stderr


def test_changes_by_many_at_once_are_all_kept(users_file: Path, run: Run) -> None:
    identity(run, "project", "add", "demo")
    names = [f"project-{number}" for number in range(30)]

    def add(name: str) -> None:
        file = DirectoryFile(users_file)
        project = next(iter(file.read().projects.values()))
        new = type(project)(id=name, name=name)
        file.change(lambda directory: directory.with_project(new))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(add, names))
    assert {project.name for project in read(users_file).projects.values()} == {"demo", *names}
    assert {path.name for path in users_file.parent.glob("identity.json*")} == {"identity.json", "identity.json.lock"}

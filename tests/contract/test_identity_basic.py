"""Strategy `basic`: an htpasswd file with projects and roles."""

from base64 import b64encode
from pathlib import Path

import bcrypt
import httpx
import pytest
from structlog.testing import capture_logs

from fleetlight.api.http.errors import DirectoryUnavailableError
from fleetlight.api.identity.basic import BasicIdentity
from fleetlight.api.limits.login_limit import MOST_FAILURES, WINDOW_S
from tests.contract.compute_fleet import Api, ComputeFleet
from tests.support.fleets.identity import weak_hash

pytestmark = pytest.mark.no_rerun

SERVERS = "/v2.1/servers"


@pytest.fixture(scope="module")
def fleet(fleet: ComputeFleet) -> ComputeFleet:
    fleet.create("north", display_name="mine", project_id="demo")
    fleet.create("east", display_name="theirs", project_id="other")
    fleet.index()
    return fleet


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Ada is an administrator with bcrypt, as `htpasswd -B` writes it, bob a member with argon2."""
    bcrypt_hash = bcrypt.hashpw(b"ada's", bcrypt.gensalt(4)).decode().replace("$2b$", "$2y$")
    path = tmp_path / "htpasswd"
    path.write_text(f"# users\n\nada:{bcrypt_hash}:demo:admin\nbob:{weak_hash('bob: his')}:demo:member, reader\n")
    return path


@pytest.fixture
def api(fleet: ComputeFleet, file: Path) -> Api:
    return fleet.api(identity=BasicIdentity(file))


def get(api: Api, name: str, password: str, path: str = SERVERS) -> httpx.Response:
    credentials = b64encode(f"{name}:{password}".encode()).decode()
    return api.get(path, {"Authorization": f"Basic {credentials}"})


def test_users_are_let_in_with_their_project_and_roles(api: Api) -> None:
    assert [server["name"] for server in get(api, "bob", "bob: his").json()["servers"]] == ["mine"]
    assert get(api, "bob", "bob: his", SERVERS + "?all_tenants=1").status_code == 403
    assert len(get(api, "ada", "ada's", SERVERS + "?all_tenants=1").json()["servers"]) == 2


def test_after_ten_wrong_passwords_a_name_has_to_wait(api: Api) -> None:
    """Whoever is known to this process goes on meanwhile, and so do the others."""
    assert get(api, "ada", "ada's").status_code == 200
    answers = [get(api, name, "guess") for name in ["ada"] * 12 + ["nobody"] * 12]
    assert [answer.status_code for answer in answers] == ([401] * MOST_FAILURES + [429] * 2) * 2
    assert 0 < int(answers[-1].headers["Retry-After"]) <= WINDOW_S
    assert answers[-1].json()["overLimit"]["code"] == 429
    assert get(api, "ada", "ada's").status_code == 200
    assert get(api, "bob", "bob: his").status_code == 200


@pytest.mark.parametrize(
    ("name", "password"),
    [("ada", "bob: his"), ("ada", ""), ("", ""), ("nobody", "ada's"), ("ada", "x" * 100), ("# users", "")],
)
def test_wrong_passwords_and_unknown_users_get_the_same_401(api: Api, name: str, password: str) -> None:
    assert get(api, "ada", "ada's").status_code == 200  # what was right once opens nothing else
    response = get(api, name, password)
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == 'Basic realm="Fleetlight", charset="UTF-8"'
    assert response.json()["error"]["code"] == 401


@pytest.mark.parametrize("header", ["", "Basic", "Basic !", "Basic /w==", "Bearer YWRhOmFkYSdz", "Basic YWRh"])
def test_headers_that_are_no_basic_authentication_get_401(api: Api, header: str) -> None:
    assert api.get(SERVERS, {"Authorization": header}).status_code == 401


def test_a_change_of_the_file_counts_at_once(api: Api, file: Path) -> None:
    assert get(api, "ada", "ada's").status_code == 200
    lines = file.read_text().splitlines()
    file.write_text("\n".join(line for line in lines if not line.startswith("ada")))
    assert get(api, "ada", "ada's").status_code == 401
    assert get(api, "bob", "bob: his").status_code == 200


@pytest.mark.parametrize(
    "line",
    [
        "eve",
        "eve:{hashed}",
        "eve:{hashed}:demo",
        "eve:{hashed}:demo:",
        "eve:{hashed}::admin",
        "eve:{hashed}:demo:king",
        "eve:{hashed}:demo:admin:more",
        "eve:evil:demo:admin",
        "eve:$apr1$abcdefgh$lBcZPzTZz8EUHQpBLCQDC0:demo:admin",
    ],
)
def test_lines_that_say_less_or_something_else_let_nobody_in_and_are_logged(
    fleet: ComputeFleet, file: Path, line: str
) -> None:
    file.write_text(file.read_text() + line.format(hashed=weak_hash("evil")) + "\n")
    with capture_logs() as events:
        api = fleet.api(identity=BasicIdentity(file))
        assert get(api, "eve", "evil").status_code == 401
    (ignored,) = [event for event in events if event["event"] == "htpasswd.line_ignored"]
    assert ignored["line"] == 5
    assert "a hash of bcrypt (htpasswd -B) or argon2, and roles out of admin, " in ignored["expected"]
    assert "$argon2" not in str(ignored)
    assert get(api, "ada", "ada's").status_code == 200


def test_file_without_any_user_is_said_to_let_nobody_in(file: Path) -> None:
    file.write_text("# nobody yet\n")
    with capture_logs() as events:
        BasicIdentity(file).check()
    assert [event["event"] for event in events] == ["htpasswd.has_no_user"]


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "No such file or directory"), (b"ada:\xff", "it is no UTF-8: ")]
)
def test_file_that_cannot_be_read_is_said_to_be_so(file: Path, content: bytes | None, reason: str) -> None:
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(DirectoryUnavailableError) as raised:
        BasicIdentity(file).check()
    assert raised.value.path == file
    assert raised.value.reason.startswith(reason)


def test_when_the_file_is_away_nobody_is_let_in(api: Api, file: Path) -> None:
    assert get(api, "ada", "ada's").status_code == 200
    file.unlink()
    response = get(api, "ada", "ada's")
    assert (response.status_code, list(response.json())) == (503, ["serviceUnavailable"])

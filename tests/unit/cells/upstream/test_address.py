"""Where a compute API is, and where to find out who we are there."""

from pathlib import Path

import pytest

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.errors import CellUnreachableError, UpstreamError
from fleetlight.cells.kinds.nova_api.adapter import NovaApiAdapter
from fleetlight.cells.kinds.nova_api.clouds import find_clouds_file, read_cloud
from fleetlight.cells.kinds.nova_api.upstream import Upstream
from fleetlight.cells.model import Cell
from fleetlight.cells.upstream.address import UpstreamAddress

URL = "https://nova.example.org:8774/v2.1"


@pytest.mark.parametrize(
    "address",
    [
        UpstreamAddress(URL),
        UpstreamAddress(URL, cloud="east & west", clouds_file=Path("/etc/openstack/clouds.yaml")),
        UpstreamAddress(URL, token_file=Path("/run/secrets/token"), ca_certs=Path("/etc/ca.pem")),
        UpstreamAddress(URL, username="fleetlight", password_file=Path("/run/secrets/password")),
    ],
)
def test_address_is_read_as_it_was_written(address: UpstreamAddress) -> None:
    assert UpstreamAddress.read(address.write()) == address


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("cloud=east", "belong together"),
        ("username=me", "belong together"),
        ("token_file=/t&username=me&password_file=/p", "more than one way"),
        ("password=secret", "'password' is not known"),
        ("url=elsewhere", "'url' is not known"),
    ],
)
def test_address_that_makes_no_sense_is_refused(query: str, said: str) -> None:
    with pytest.raises(UpstreamError, match=said) as refused:
        UpstreamAddress.read(f"{URL}?{query}")
    assert "secret" not in str(refused.value)


def test_url_that_is_none_of_an_api_is_refused() -> None:
    for url in ("ftp://nova/v2.1", "nova", "https://user:secret@nova/v2.1"):
        with pytest.raises(UpstreamError, match="must be like https://") as refused:
            Upstream(UpstreamAddress(url), timeout_s=1).open_client()
        assert "secret" not in str(refused.value)


def test_cell_whose_address_is_none_of_an_api_cannot_be_reached() -> None:
    adapter = NovaApiAdapter(Cell("u", "east", CellKind.NOVA_API, "", ""))
    with pytest.raises(CellUnreachableError, match="'east' cannot be reached: the address of an API must be like"):
        adapter.find("any")


def test_secret_that_cannot_be_read_is_named_by_its_file(tmp_path: Path) -> None:
    with pytest.raises(UpstreamError, match=r"cannot read .*absent"):
        Upstream(UpstreamAddress(URL, username="me", password_file=tmp_path / "absent"), timeout_s=1)


@pytest.fixture
def clouds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "clouds.yaml"
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(file))
    return file


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("clouds: {east: {auth: [", "it is not YAML"),
        ("clouds: {west: {auth: {}}}", "no login for a cloud 'east'; known: west"),
        ("clouds: {east: {auth: {username: me, password: secret}}}", "auth.project_name is missing"),
        ("clouds: {east: {auth: {username: me, password: secret, project_id: p}}}", "auth.auth_url is missing"),
        ("clouds: {east: {auth: {password: secret, project_id: p}}}", "auth.username is missing"),
        ("clouds: {east: {auth_type: v3kerberos, auth: {password: secret}}}", "auth_type 'v3kerberos' is not known"),
        ("clouds: {east: {auth_type: token, auth: {auth_url: http://k}}}", "auth.token is missing"),
    ],
)
def test_cloud_that_says_too_little_is_named_without_its_secrets(clouds: Path, text: str, said: str) -> None:
    clouds.write_text(text)
    with pytest.raises(UpstreamError, match=said) as refused:
        read_cloud(find_clouds_file(), "east", timeout_s=1)
    assert "secret" not in str(refused.value)


def test_missing_clouds_file_is_named_with_where_it_was_looked_for(clouds: Path) -> None:
    with pytest.raises(UpstreamError, match=f"there is no clouds.yaml: looked for {clouds}"):
        find_clouds_file()

"""The image API: what clients ask before they create a server (contracts/nova-rest, section 6)."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from fleetlight.cells.fleet.compute.default_images import DEFAULT_IMAGES
from tests.contract.compute_fleet import compute_fleet
from tests.contract.identity_site import Site

IMAGES = "/image/v2/images"
DEBIAN = next(image for image in DEFAULT_IMAGES if image.name == "debian-12")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with compute_fleet(tmp_path_factory.mktemp("fleet")) as fleet:
        yield Site(fleet, tmp_path_factory.mktemp("users"))


def names(site: Site, query: str) -> list[str]:
    response = site.get(f"{IMAGES}?{query}", site.log_in("rita"))
    assert response.status_code == 200, response.text
    return [image["name"] for image in response.json()["images"]]


def test_versions_lead_to_v2_without_a_token(site: Site) -> None:
    for path in ("/image", "/image/"):
        response = site.api.get(path)
        assert response.status_code == 300
        (version,) = response.json()["versions"]
        assert (version["status"], version["links"][0]["href"]) == ("CURRENT", "http://api.test/image/v2/")


def test_the_catalog_names_the_image_service(site: Site) -> None:
    catalog = site.get("/identity/v3/auth/catalog", site.log_in("rita")).json()["catalog"]
    (image,) = [service for service in catalog if service["type"] == "image"]
    assert {endpoint["url"] for endpoint in image["endpoints"]} == {"http://api.test/image"}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", [image.name for image in DEFAULT_IMAGES]),
        ("name=debian-12", ["debian-12"]),
        ('name=in:"debian-12","rocky-9"', ["debian-12", "rocky-9"]),
        (f"id=in:{DEBIAN.id},none", ["debian-12"]),
        ("os_distro=ubuntu", ["ubuntu-24.04"]),
        ("status=active&visibility=public&os_hidden=false", [image.name for image in DEFAULT_IMAGES]),
        ("os_hidden=True", []),
        ("visibility=private", []),
        ("tag=any", []),
        ("no_such_property=x", []),
        ("limit=0", []),
    ],
)
def test_lists_keep_what_is_asked_for(site: Site, query: str, expected: list[str]) -> None:
    assert names(site, query) == expected


def test_pages_follow_each_other(site: Site) -> None:
    seen: list[str] = []
    path: str | None = "/v2/images?limit=3&status=active"
    while path is not None:
        page = site.get(f"/image{path}", site.log_in("rita")).json()
        seen += [image["name"] for image in page["images"]]
        path = page.get("next")
    assert seen == [image.name for image in DEFAULT_IMAGES]


def test_one_image_is_found_by_its_id_alone(site: Site) -> None:
    token = site.log_in("rita")
    shown = site.get(f"{IMAGES}/{DEBIAN.id}", token)
    assert (shown.status_code, shown.json()["name"]) == (200, "debian-12")
    for missing in (f"{IMAGES}/debian-12", "/image/v2/schemas/image", "/image/v1/images"):
        assert site.get(missing, token).status_code == 404


@pytest.mark.parametrize("query", ["limit=x", "limit=-1", "limit=" + "9" * 50, "marker=none"])
def test_pages_that_there_cannot_be_get_400(site: Site, query: str) -> None:
    assert site.get(f"{IMAGES}?{query}", site.log_in("rita")).status_code == 400


def test_images_are_for_those_who_have_a_role_in_a_project(site: Site) -> None:
    response = site.api.get(IMAGES)
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"].startswith("Keystone")
    assert site.get(IMAGES, site.log_in("bob", None)).status_code == 403
    assert site.api.request("POST", IMAGES, {"X-Auth-Token": site.log_in("ada")}).status_code == 404


def test_shelved_server_has_an_image_until_it_is_unshelved(tmp_path: Path) -> None:
    with compute_fleet(tmp_path) as fleet:
        fleet.add_hosts()
        site = Site(fleet, tmp_path)
        ada = site.log_in("ada")
        project_id = site.get("/identity/v3/auth/projects", ada).json()["projects"][0]["id"]
        uuid = fleet.create("east", display_name="box", image_ref=DEBIAN.id, project_id=project_id, host="east-host0")
        fleet.create("north", display_name="other", project_id="others", vm_state="shelved")

        def act(action: str) -> None:
            content = {"X-Auth-Token": ada}
            answer = site.api.request("POST", f"/v2.1/servers/{uuid}/action", content, json={action: None})
            assert answer.status_code == 202, answer.text

        def images(query: str = "name=box-shelved") -> list[tuple[str, str]]:
            found = site.get(f"{IMAGES}?{query}", ada).json()["images"]
            return [(image["name"], image["status"]) for image in found]

        def shown() -> int:
            return site.get(f"{IMAGES}/{uuid}", ada).status_code

        assert (images(), shown()) == ([], 404)
        act("shelve")
        assert images() == [("box-shelved", "queued")]
        fleet.work()
        assert (images(), shown()) == ([("box-shelved", "active")], 200)
        assert images("visibility=private") == images("owner=" + project_id) == [("box-shelved", "active")]
        assert len(images("")) == len(DEFAULT_IMAGES) + 1
        assert images("name=other-shelved") == [], "of another project"
        act("unshelve")
        assert images() == [("box-shelved", "active")]
        fleet.work()
        assert (images(), shown()) == ([], 404)


def test_users_that_cannot_be_read_are_logged(tmp_path: Path) -> None:
    with compute_fleet(tmp_path) as fleet, structlog.testing.capture_logs() as logs:
        site = Site(fleet, tmp_path)
        site.users.path.write_text("{")
        assert site.get(IMAGES, "token").status_code == 503
    assert [(log["event"], log["log_level"]) for log in logs] == [("identity.unavailable", "error")]

"""The image API: what clients ask before they create a server (contracts/nova-rest, section 6)."""

from collections.abc import Iterator

import pytest

from operations.simulation.default_images import DEFAULT_IMAGES
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

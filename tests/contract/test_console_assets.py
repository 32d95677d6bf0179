"""The console's files, the index of what there is, and what a browser gets at `/`."""

import asyncio
import gzip
import re
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from fleetlight.api.console.assets import STATIC, ConsoleAssets
from tests.contract.compute_fleet import Api

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; font-src 'self'; "
    "img-src 'self' data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)


def test_a_browser_is_led_to_the_console_and_programs_get_versions(api: Api) -> None:
    led = api.get("/", BROWSER)
    assert (led.status_code, led.headers["Location"]) == (302, "/console/")
    assert api.get("/console", BROWSER).headers["Location"] == "/console/"
    for accept in ("*/*", "application/json", "application/json, text/html"):
        assert [each["id"] for each in api.get("/", {"Accept": accept}).json()["versions"]] == ["v2.0", "v2.1"]


@pytest.mark.parametrize("path", ["", "instances", "instances/abc?filter=x", "..%2f..%2fapp.py", "assets.py", "%00"])
def test_an_address_of_no_file_has_the_page(api: Api, path: str) -> None:
    page = api.get(f"/console/{path}")
    assert page.status_code == 200
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert page.headers["Cache-Control"] == "no-cache"
    assert '<div id="console"></div>' in page.text


def test_every_asset_of_the_page_is_there_for_good_and_compressed_where_asked(api: Api) -> None:
    names = re.findall(r'"/console/([^"]+)"', api.get("/console/").text)
    assert {name.rpartition(".")[2] for name in names} >= {"js", "css", "svg"}
    for name in names:
        plain = api.get(f"/console/{name}", {"Accept-Encoding": "identity"})
        assert "immutable" in plain.headers["Cache-Control"]
        assert plain.headers["Content-Type"].startswith(("text/javascript", "text/css", "image/svg+xml"))
        assert "Content-Encoding" not in plain.headers
        compressed = api.get(f"/console/{name}", {"Accept-Encoding": "gzip"})
        assert compressed.headers["Content-Encoding"] == "gzip"
        assert compressed.content == plain.content == gzip.decompress((STATIC / f"{name}.gz").read_bytes())


def test_an_asset_of_an_older_page_is_missed_and_not_taken_for_the_page(api: Api) -> None:
    assert api.get("/console/main-AAAAAAAA.js").status_code == 404


@pytest.mark.parametrize("path", ["/console/", "/console/main-AAAAAAAA.js", "/console/nodes"])
def test_nothing_from_outside_is_loaded_and_no_other_page_shows_it(api: Api, path: str) -> None:
    headers = api.get(path).headers
    assert headers["Content-Security-Policy"] == POLICY
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"


def test_without_assets_it_is_said_what_to_run(tmp_path: Path) -> None:
    application = Starlette(routes=ConsoleAssets(tmp_path).routes())

    async def get() -> httpx.Response:
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://api.test") as client:
            return await client.get("/console/instances")

    answer = asyncio.run(get())
    assert answer.status_code == 503
    assert "scripts/console" in answer.text


def test_all_assets_are_small() -> None:
    compressed = sum(path.stat().st_size for path in STATIC.glob("*.gz"))
    assert 0 < compressed <= 150_000


def test_the_index_leads_to_what_can_be_read(api: Api) -> None:
    index = api.get("/fleetlight").json()
    assert re.fullmatch(r"\d+\.\d+\.\d+", index["version"])
    links = {link["rel"]: link["href"] for link in index["links"]}
    assert links["query"] == "/fleetlight/query"
    assert links["console"] == "/console/"
    assert {"session", "capacity", "explain", "query/fields", "compute", "openapi"} <= links.keys()
    for href in links.values():
        assert api.get(href).status_code not in {404, 405}, href
    assert all(link["summary"] for link in index["links"])

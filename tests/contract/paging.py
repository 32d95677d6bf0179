"""Following the pages of a list while one of its cells fails."""

from collections.abc import Callable

import httpx

_PAGE = 4


def page_through(
    get: Callable[[str], httpx.Response], cell: str, fail: Callable[[], None], *, has_index: bool
) -> list[str]:
    """The ids of all pages; `fail` is called after the second one, and makes `cell` (name) fail, or only slow.

    No page may repeat a row, or say that it is complete without that cell.
    """
    seen: list[str] = []
    url: str | None = f"/v2.1/servers?limit={_PAGE}&sort_key=display_name&sort_dir=asc"
    pages = 0
    while url is not None:
        response = get(url)
        if response.status_code == 500:
            # The marker is of the cell, and nobody else knows where it was: no other page is passed for this one.
            assert not has_index
            break
        servers = response.json()["servers"]
        seen += [server["id"] for server in servers]
        route = response.headers["Fleetlight-Route"]
        is_answering = f"{cell}=live" in route or f"{cell}=index;" in route
        if response.headers["Fleetlight-Complete"] == "true":
            assert is_answering, route
        pages += 1
        if pages == 2:
            fail()
        links = response.json().get("servers_links", [])
        url = links[0]["href"] if links else None
    assert len(seen) == len(set(seen)), "no row twice"
    return seen

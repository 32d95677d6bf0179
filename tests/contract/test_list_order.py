"""Order and pages of the server lists, by every way of answering (contracts/nova-servers, sections 5 and 6)."""

from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import pytest

from fleetlight.api.settings import ApiSettings
from tests.contract.answering import Asked, words
from tests.contract.compute_fleet import MEMBER, ComputeFleet, compute_fleet, microversion

pytestmark = pytest.mark.no_rerun

LATEST = microversion("2.104")
UNKNOWN = "00000000-0000-4000-8000-000000000000"
SECOND = 1_000_000
FLAVOR = {"name": "m1", "flavorid": "small", "memory_mb": 512, "vcpus": 1, "root_gb": 1, "ephemeral_gb": 0, "swap": 0}

# Section 5. What stands for a value in the second and the third server; the first one has none, where that can be.
ALWAYS = {
    "access_ip_v4": ("10.0.0.1", "9.0.0.1"),
    "access_ip_v6": ("2001::1", "fd00::1"),
    "auto_disk_config": (False, True),
    "availability_zone": ("a", "b"),
    "config_drive": ("", "True"),
    "created_at": (5 * SECOND, 6 * SECOND),  # of the first server 4
    "display_description": ("Z", "a"),
    "display_name": ("Z", "a"),
    "host": ("h1", "h2"),
    "hostname": ("g1", "g2"),
    "image_ref": ("", "i"),
    "instance_type_id": (9, 10),
    "kernel_id": ("k1", "k2"),
    "key_name": ("k", "é"),
    "launch_index": (9, 10),
    "launched_at": (5 * SECOND, 6 * SECOND),
    "locked_by": ("admin", "owner"),
    "node": ("n1", "n2"),
    "power_state": (1, 4),
    "progress": (9, 10),
    "project_id": ("demo", "other"),
    "ramdisk_id": ("r1", "r2"),
    "root_device_name": ("/dev/sda", "/dev/vda"),
    "task_state": ("rebooting", "resize_prep"),
    "terminated_at": (5 * SECOND, 6 * SECOND),
    "updated_at": (5 * SECOND, 6 * SECOND),
    "user_id": ("ada", "grace"),
    "vm_state": ("active", "stopped"),
}
LOCKED = {"locked": (False, True)}
IGNORED = words(
    "architecture cell_name cleaned default_ephemeral_device default_swap_device deleted deleted_at disable_terminate"
    " ephemeral_gb ephemeral_key_uuid id key_data launched_on memory_mb os_type reservation_id root_gb"
    " shutdown_terminate user_data vcpus vm_mode"
)
NEVER = ["name", "status", "created", "updated", "flavor", "image", "tenant_id", "", "HOST", "host ", "uuid,host", "é"]
# They have a value in every row; the first server has that of the second one.
NOT_NULL = {"auto_disk_config", "locked", "project_id"}


def fill(fleet: ComputeFleet) -> None:
    """Three servers for each key: lowest, middle, highest, so that each key alone orders them."""
    columns: dict[str, tuple[Any, Any]] = {**ALWAYS, **LOCKED}
    for place, cell in enumerate(("south", "east", "north")):
        values = {key: pair[max(place - 1, 0)] if place or key in NOT_NULL else None for key, pair in columns.items()}
        created_at = (4 + place) * SECOND
        values["flavor"] = FLAVOR
        fleet.create(cell, **{**values, "reservation_id": f"place-{place}", "created_at": created_at})


def places_by(asked: Asked, query: str, *headers: dict[str, str]) -> list[str]:
    """The places of the servers (fill) in the order of a list of all projects."""
    servers = asked.page(f"all_tenants=1&{query}", *(headers or (LATEST,)))
    return [server["OS-EXT-SRV-ATTR:reservation_id"][-1] for server in servers]


@pytest.mark.parametrize("key", [*ALWAYS, *LOCKED])
def test_list_is_sorted_by_a_key_with_nulls_lowest(asked: Asked, key: str) -> None:
    ascending = places_by(asked, f"sort_key={key}&sort_dir=asc")
    assert ascending[-1] == "2"
    assert places_by(asked, f"sort_key={key}") == places_by(asked, f"sort_key={key}&sort_dir=desc")
    assert places_by(asked, f"sort_key={key}")[0] == "2"
    if key not in NOT_NULL:
        assert ascending == ["0", "1", "2"]
        assert places_by(asked, f"sort_key={key}") == ["2", "1", "0"]


def test_uuid_breaks_ties_and_is_a_key_itself(asked: Asked) -> None:
    ids = sorted(server["id"] for server in asked.page("all_tenants=1", LATEST))
    tied = [server["id"] for server in asked.page("all_tenants=1&sort_key=locked&sort_dir=asc", LATEST)][:2]
    assert tied == sorted(tied)
    for direction, expected in (("asc", ids), ("desc", ids[::-1])):
        servers = asked.page(f"all_tenants=1&sort_key=uuid&sort_dir={direction}&sort_key=host", LATEST)
        assert [server["id"] for server in servers] == expected


@pytest.mark.parametrize(
    ("query", "minor", "places"),
    [
        # The newest come first unless something else is said.
        ("", 104, "210"),
        ("sort_dir=asc", 104, "012"),
        ("sort_dir=%20asc%20", 104, "012"),
        # A key that is ignored takes the direction at its place with it.
        ("sort_key=id&sort_dir=asc", 74, "210"),
        ("sort_key=id&sort_key=vcpus", 74, "210"),
        ("sort_key=id&sort_dir=asc&sort_key=host&sort_dir=desc", 74, "210"),
        ("sort_key=vcpus&sort_key=host&sort_dir=desc&sort_dir=asc", 74, "012"),
        ("sort_key=locked&sort_dir=asc&sort_key=host&sort_dir=desc", 72, "210"),
        # So nobody looks at it.
        ("sort_key=id&sort_dir=up", 74, "210"),
        ("sort_key=vcpus&sort_key=host&sort_dir=up&sort_dir=asc", 74, "012"),
        ("sort_key=locked&sort_dir=desc&sort_key=host&sort_dir=asc", 73, "201"),
        # A key without a direction takes the first one that was given.
        ("sort_key=auto_disk_config&sort_key=host&sort_dir=asc", 104, "012"),
        ("sort_key=auto_disk_config&sort_key=host&sort_dir=desc", 104, "210"),
        ("sort_key=auto_disk_config&sort_key=host&sort_dir=desc&sort_dir=asc", 104, "201"),
        ("sort_key=host&sort_key=host&sort_dir=asc&sort_dir=desc", 104, "012"),
    ],
)
def test_keys_and_directions_make_the_order(asked: Asked, query: str, minor: int, places: str) -> None:
    assert "".join(places_by(asked, query, microversion(f"2.{minor}"))) == places


def test_ties_go_by_the_names_on_hypervisors_where_all_keys_are_ignored(tmp_path: Path) -> None:
    """They are made of the numbers of rows in cells of Nova."""
    with compute_fleet(tmp_path) as fleet:
        for cell, number in (("south", 1), ("east", 10), ("north", 3)):
            fleet.create(cell, created_at=SECOND, instance_name=f"instance-{number:08x}", display_name=str(number))
        fleet.index()
        api = fleet.api()
        for consistency in ("any", "strong"):
            asked = Asked(fleet, api, "index" if consistency == "any" else "cells")
            old = microversion("2.74")
            assert asked.names("all_tenants=1&sort_key=id&sort_dir=asc", old) == ["10", "3", "1"]
            first = asked.page("all_tenants=1&sort_key=id&limit=1", old)[0]["id"]
            assert asked.names(f"all_tenants=1&sort_key=id&marker={first}", old) == ["3", "1"]


@pytest.mark.parametrize("headers", [{}, MEMBER], ids=["admin", "member"])
def test_key_must_be_one_of_those_of_its_microversion(asked: Asked, headers: dict[str, str]) -> None:
    def status(key: str, minor: int) -> int:
        response = asked.get(f"/v2.1/servers?limit=0&sort_key={quote(key)}", microversion(f"2.{minor}"), headers)
        return response.status_code

    for key in (*ALWAYS, "locked"):
        expected = 403 if headers and key in {"host", "node"} else 200
        assert [status(key, minor) for minor in (1, 75)] == [expected] * 2, key
    for key in IGNORED:
        assert [status(key, minor) for minor in (74, 75)] == [200, 400], key
    for key in NEVER:
        assert [status(key, minor) for minor in (1, 75)] == [400] * 2, key


@pytest.mark.parametrize(
    "query",
    [
        "sort_dir=up",
        "sort_dir=ASC",
        "sort_dir=",
        "sort_key=host&sort_dir=asc&sort_dir=asc",
        "sort_dir=asc&sort_dir=desc",
        "sort_key=host&sort_key=name",
        "sort_dir=up&limit=0",
        "sort_dir=up&ip=10",
        "sort_key=host&sort_dir=up",
    ],
)
def test_order_that_makes_no_sense_is_refused(asked: Asked, query: str) -> None:
    for path in ("servers", "servers/detail"):
        response = asked.get(f"/v2.1/{path}?{query}", LATEST)
        assert response.status_code == 400
        assert set(response.json()) == {"badRequest"}


@pytest.mark.parametrize("key", [*ALWAYS, *LOCKED, "uuid"])
def test_pages_of_one_give_each_server_once_and_in_order(asked: Asked, key: str) -> None:
    query = f"all_tenants=1&sort_key={key}&sort_dir={'asc' if len(key) % 2 else 'desc'}"
    whole = [server["id"] for server in asked.page(query, LATEST)]
    paged: list[str] = []
    url = f"/v2.1/servers?{query}&limit=1"
    for _ in range(len(whole) + 1):
        body = asked.get(url, LATEST).json()
        paged += [server["id"] for server in body["servers"]]
        if not body["servers"]:
            assert "servers_links" not in body
            break
        [link] = body["servers_links"]
        assert set(link) == {"rel", "href"}
        url = link["href"]
    assert paged == whole
    assert len(set(whole)) == 3


@pytest.mark.parametrize(
    ("query", "headers", "repeated"),
    [
        # Sorted by name; the marker last where the request had none, else in its place.
        ("limit=1&all_tenants=1", {}, "all_tenants=1&limit=1&marker={id}"),
        ("status=active&limit=1&name=.", {}, "limit=1&name=.&status=active&marker={id}"),
        # Of what is repeated, the value that counts; all of what counts altogether, in its order.
        ("limit=5&limit=1", {}, "limit=1&marker={id}"),
        ("limit=1&name=x&name=.", {}, "limit=1&name=.&marker={id}"),
        (
            "sort_key=host&sort_key=node&sort_dir=desc&sort_dir=asc&limit=1",
            {},
            "limit=1&sort_dir=desc&sort_dir=asc&sort_key=host&sort_key=node&marker={id}",
        ),
        ("limit=1&status=active&status=error", {}, "limit=1&status=active&status=error&marker={id}"),
        # What does not count for this caller is repeated, what the microversion does not know is not.
        ("limit=1&host=x&_a=b&services=1", MEMBER, "_a=b&host=x&limit=1&services=1&marker={id}"),
        ("limit=1&foo=1&tags=a&locked=1", {}, "limit=1&marker={id}"),
        ("limit=1&name=%C3%A9%7C.&ip=", {}, None),
        ("limit=1&name=%C3%A9%7C%5B%26%3D%5D%7C.", {}, "limit=1&name=%C3%A9%7C%5B%26%3D%5D%7C.&marker={id}"),
    ],
)
def test_link_to_the_next_page_repeats_the_request(
    asked: Asked, query: str, headers: dict[str, str], repeated: str | None
) -> None:
    for path in ("servers", "demo/servers/detail"):
        response = asked.get(f"/v2.1/{path}?{query}", headers)
        if repeated is None:
            assert response.status_code == 400
            continue
        [link] = response.json()["servers_links"]
        last = response.json()["servers"][-1]["id"]
        # Names are in the order of their text, the marker too if the request had one.
        address, _, found = link["href"].partition("?")
        assert (link["rel"], address) == ("next", f"http://api.test/v2.1/{path}")
        assert found == repeated.format(id=last)
        followed = asked.get(link["href"], headers)
        assert followed.status_code == 200
        if (further := followed.json().get("servers_links")) is not None:
            names = [name for name, _ in parse_qsl(urlsplit(further[0]["href"]).query, keep_blank_values=True)]
            assert names == sorted(names)
            assert names.count("marker") == 1


def test_page_is_never_larger_than_asked_for_and_links_on_exactly_when_full(asked: Asked) -> None:
    for limit, count, links in ((0, 0, False), (1, 1, True), (2, 2, True), (3, 3, True), (4, 3, False)):
        body = asked.get(f"/v2.1/servers?all_tenants=1&limit={limit}").json()
        assert (len(body["servers"]), "servers_links" in body) == (count, links), limit
    assert set(asked.get("/v2.1/servers?limit=0").json()) == {"servers"}


def test_largest_page_is_max_limit_and_so_is_the_page_of_no_limit(request: pytest.FixtureRequest, asked: Asked) -> None:
    api = asked.fleet.api(settings=ApiSettings(max_limit=2))
    for query in ("", "limit=3", "limit=2", "limit=99999999999999999999"):
        page = api.get(f"/v2.1/servers?all_tenants=1&{query}").json()
        assert len(page["servers"]) == 2
        assert len(page["servers_links"]) == 1


@pytest.mark.parametrize("marker", [UNKNOWN, "x", "0", "\x7f", UNKNOWN + "0", "{}", "urn:uuid:"])
@pytest.mark.parametrize("headers", [{}, MEMBER], ids=["admin", "member"])
def test_unknown_marker_is_an_error(asked: Asked, marker: str, headers: dict[str, str]) -> None:
    response = asked.get(f"/v2.1/servers?marker={quote(marker)}", headers)
    assert response.status_code == 400
    assert set(response.json()) == {"badRequest"}


@pytest.mark.parametrize("headers", [{}, MEMBER], ids=["admin", "member"])
def test_empty_marker_is_none(asked: Asked, headers: dict[str, str]) -> None:
    assert asked.names("marker=&sort_key=id", headers) == asked.names("sort_key=id", headers)


@pytest.mark.parametrize("headers", [{}, MEMBER], ids=["admin", "member"])
def test_unknown_marker_does_not_matter_beside_a_flavor_or_an_address_that_no_server_has(
    asked: Asked, headers: dict[str, str]
) -> None:
    for marker in (UNKNOWN, "x"):
        for condition in ("flavor=nosuch", "ip=192.0.2.77", "ip6=fd99::", "flavor=small&ip=192.0.2.77"):
            response = asked.get(f"/v2.1/servers?marker={marker}&{condition}", LATEST, headers)
            assert (response.status_code, response.json()) == (200, {"servers": []}), condition
        assert asked.get(f"/v2.1/servers?marker={marker}&flavor=small", LATEST, headers).status_code == 400


def test_marker_need_not_match_the_filters(asked: Asked) -> None:
    newest, *others = [server["id"] for server in asked.page("all_tenants=1", LATEST)]
    found = asked.page(f"all_tenants=1&marker={newest}&reservation_id=place-[01]", LATEST)
    assert [server["id"] for server in found] == others


def test_marker_of_another_project_is_for_others_than_administrators_no_marker_at_all(asked: Asked) -> None:
    """A page behind it would tell where it sorts, and so, with enough pages, what it is called."""
    theirs = next(server for server in asked.page("all_tenants=1", LATEST) if server["tenant_id"] == "other")["id"]
    for query in ("", "&sort_key=display_name", "&changes-since=1970", "&limit=0"):
        for path in ("servers", "servers/detail"):
            known, unknown = (
                asked.get(f"/v2.1/{path}?marker={uuid}{query}", LATEST, MEMBER) for uuid in (theirs, UNKNOWN)
            )
            assert known.status_code == unknown.status_code == 400
            assert known.text.replace(theirs, UNKNOWN) == unknown.text
            assert asked.get(f"/v2.1/{path}?marker={theirs}{query}", LATEST).status_code == 200


@pytest.mark.parametrize(
    "query",
    [
        "sort_key=host&sort_dir=up",
        "sort_key=node&sort_dir=asc&sort_dir=asc",
        "all_tenants=1&sort_dir=up",
        "status=deleted&sort_dir=asc&sort_dir=asc",
    ],
)
@pytest.mark.parametrize("path", ["servers", "servers/detail"])
def test_what_a_member_must_not_ask_for_is_refused_before_directions_are_looked_at(
    asked: Asked, path: str, query: str
) -> None:
    assert asked.get(f"/v2.1/{path}?{query}", LATEST, MEMBER).status_code == 403
    assert asked.get(f"/v2.1/{path}?{query}", LATEST).status_code == 400

"""Query parameters of the server lists: values, unknown names, who may use what (contracts/nova-servers, section 3)."""

from collections.abc import Mapping
from urllib.parse import quote

import pytest

from tests.contract.answering import words
from tests.contract.compute_fleet import MEMBER, Api, ComputeFleet, microversion

pytestmark = pytest.mark.no_rerun

UNKNOWN = "00000000-0000-4000-8000-000000000000"
NEVER = 1000
FIRST, LAST = 1, 104

# Section 3.1. The microversion is 2.1 unless the name came later.
TEXTS = words(
    "user_id project_id tenant_id launch_index image image_ref vm_state task_state host uuid soft_deleted deleted"
)
PATTERNS = words(
    "kernel_id ramdisk_id hostname key_name power_state node flavor reservation_id launched_at terminated_at"
    " availability_zone name display_name description display_description locked_by root_device_name config_drive"
    " access_ip_v4 access_ip_v6 auto_disk_config progress ip ip6 created_at"
)
TAG_PATTERNS = words("tags tags-any not-tags not-tags-any")
JOINED = words("block_device_mapping services metadata system_metadata info_cache security_groups pci_devices")
UNKNOWN_NAMES = words("foo page_size offset hidden metadata:a updated_at id fixed_ip cell instance_uuid é")

# Section 3.2: each filter with a value that finds none of the servers, the microversion that brought it, and the one
# that gave it to everybody.
FILTERS = {
    "reservation_id": ("nowhere", 1, 1),
    "name": ("nowhere", 1, 1),
    "status": ("paused", 1, 1),
    "image": ("nowhere", 1, 1),
    "flavor": ("nowhere", 1, 1),
    "ip": ("nowhere", 1, 1),
    "changes-since": ("2999-01-01T00:00:00Z", 1, 1),
    "ip6": ("nowhere", 1, 5),
    "tags": ("nowhere", 26, 26),
    "tags-any": ("nowhere", 26, 26),
    "not-tags": ("everywhere", 26, 26),
    "not-tags-any": ("everywhere", 26, 26),
    "changes-before": ("1999-01-01T00:00:00Z", 66, 66),
    "locked": ("true", 73, 73),
    "availability_zone": ("nowhere", 1, 83),
    "config_drive": ("nowhere", 1, 83),
    "key_name": ("nowhere", 1, 83),
    "created_at": ("1999", 1, 83),
    "launched_at": ("1999", 1, 83),
    "terminated_at": ("1999", 1, 83),
    "power_state": ("9", 1, 83),
    "task_state": ("nowhere", 1, 83),
    "vm_state": ("nowhere", 1, 83),
    "progress": ("9", 1, 83),
    "user_id": ("nobody", 1, 83),
    "hostname": ("nowhere", 1, 90),
    "host": ("nowhere", 1, NEVER),
    "node": ("nowhere", 1, NEVER),
    "deleted": ("true", 1, NEVER),
    "uuid": (UNKNOWN, 1, NEVER),
    "launch_index": ("9", 1, NEVER),
    "image_ref": ("nowhere", 1, NEVER),
    "kernel_id": ("nowhere", 1, NEVER),
    "ramdisk_id": ("nowhere", 1, NEVER),
    "display_name": ("nowhere", 1, NEVER),
    "display_description": ("nowhere", 1, NEVER),
    "locked_by": ("nowhere", 1, NEVER),
    "root_device_name": ("nowhere", 1, NEVER),
    "access_ip_v4": ("nowhere", 1, NEVER),
    "access_ip_v6": ("nowhere", 1, NEVER),
    "auto_disk_config": ("nowhere", 1, NEVER),
}


@pytest.fixture(scope="module")
def fleet(fleet: ComputeFleet) -> ComputeFleet:
    fleet.create("north", tags=["everywhere"], updated_at=1_700_000_000_000_000)
    fleet.create("east", project_id="other", user_id="grace", tags=["everywhere"])
    fleet.index()
    return fleet


def status(api: Api, query: str, minor: int, headers: Mapping[str, str]) -> int:
    """The status of both lists, which never differ."""
    short, full = (
        api.get(f"/v2.1/servers{path}?{query}", microversion(f"2.{minor}"), headers) for path in ("", "/detail")
    )
    assert short.status_code == full.status_code
    if short.status_code != 200:
        assert short.json() == full.json()
        assert short.json()["badRequest"]["code"] == 400
    return short.status_code


def is_applied(api: Api, query: str, minor: int, headers: Mapping[str, str]) -> bool:
    """Whether a parameter that no server satisfies keeps the only server of the project from being listed."""
    found = api.ids(f"/v2.1/servers?{query}", microversion(f"2.{minor}"), headers)
    assert len(found) <= 1
    return not found


@pytest.mark.parametrize("headers", [{}, MEMBER], ids=["admin", "member"])
@pytest.mark.parametrize("name", [*PATTERNS, *TAG_PATTERNS])
def test_pattern_must_be_a_regular_expression_that_is_not_empty(api: Api, name: str, headers: dict[str, str]) -> None:
    minor = LAST if name in TAG_PATTERNS else FIRST
    for value in ("", "[", "*a", "a{2,1}", "\\"):
        assert status(api, f"{name}={quote(value)}", minor, headers) == 400, value
    assert status(api, f"{name}=[&{name}=fine", minor, headers) == 400, "every value is checked, not the last alone"
    assert status(api, f"{name}=%5Efine%24", minor, headers) == 200


@pytest.mark.parametrize("headers", [{}, MEMBER], ids=["admin", "member"])
@pytest.mark.parametrize("name", TEXTS)
def test_text_may_be_anything(api: Api, name: str, headers: dict[str, str]) -> None:
    values = ["", "x", "-1", "é😀", "a,b", "%", "'", '"', "a" * 40_000]
    if name != "launch_index":  # its value is a pattern, which is seen when it is used
        values += ["[", "\\"]
    for value in values:
        assert status(api, f"{name}={quote(value)}", FIRST, headers) == 200, value


@pytest.mark.parametrize("headers", [{}, MEMBER], ids=["admin", "member"])
@pytest.mark.parametrize(("name", "minor"), [("changes-since", 1), ("changes-before", 66)])
def test_time_must_be_one_of_iso_8601(api: Api, name: str, minor: int, headers: dict[str, str]) -> None:
    for bad in ("", "x", "yesterday", "1", "12:00", "2026-13", "2026-02-30", "2026-01-01T25:00", "1763719200", "null"):
        assert status(api, f"{name}={quote(bad)}", minor, headers) == 400, bad
    for good in (
        "2026",
        "2026-01",
        "2026-1-2",
        "20260102",
        "2026-01-02 03:04",
        "2026-01-02T03",
        "2026-01-02T03:04:05Z",
        "2026-01-02T03:04:05.123456789Z",
        "2026-01-02T03:04:05,5+01:00",
        "20260102T030405-0130",
        "2026-01-02T03:04:05+02",
    ):
        assert status(api, f"{name}={quote(good)}", minor, headers) == 200, good
    assert status(api, f"{name}=x&{name}=2026", minor, headers) == 400


def test_limit_must_be_digits(api: Api) -> None:
    for bad in ("", "-1", "-0", "+1", " 1", "1 ", "1.0", "1e3", "0x1", "x", "٣", "１", "1_0"):
        assert status(api, f"limit={quote(bad)}", FIRST, MEMBER) == 400, bad
    for good in ("0", "1", "0001", "9" * 50, "0" * 5000 + "1"):
        assert status(api, f"limit={good}", FIRST, MEMBER) == 200, good
    assert status(api, "limit=x&limit=1", FIRST, MEMBER) == 400


@pytest.mark.parametrize("name", ["all_tenants", "locked"])
def test_strict_truths(api: Api, name: str) -> None:
    for good in ("1", "t", "TRUE", "on", "Y", "yes", "0", "F", "false", "off", "n", "NO", " true ", "\ttrue\n"):
        assert status(api, f"{name}={quote(good)}", LAST, {}) == 200, good
    for bad in ("2", "maybe", "tru", "truefalse", "None", "-1", "é", " "):
        assert status(api, f"{name}={quote(bad)}", LAST, {}) == 400, bad
    assert status(api, f"{name}=maybe&{name}=1", LAST, {}) == 200, "the last one counts, and is read"
    assert status(api, f"{name}=1&{name}=maybe", LAST, {}) == 400
    assert status(api, f"{name}=", LAST, {}) == (200 if name == "all_tenants" else 400)


@pytest.mark.parametrize("headers", [{}, MEMBER], ids=["admin", "member"])
@pytest.mark.parametrize("name", UNKNOWN_NAMES)
def test_unknown_name_is_ignored_until_2_74_and_refused_from_2_75(api: Api, name: str, headers: dict[str, str]) -> None:
    for minor, expected in ((1, 200), (74, 200), (75, 400), (104, 400)):
        assert status(api, f"{quote(name)}=%5B", minor, headers) == expected


@pytest.mark.parametrize("name", [*JOINED, "_", "_x", "__class__"])
def test_forbidden_name_is_an_error_for_administrators_and_ignored_of_others(api: Api, name: str) -> None:
    for minor in (1, 74, 75, 104):
        assert status(api, f"{name}=1", minor, {}) == 400
        assert status(api, f"{name}=1", minor, MEMBER) == 200


@pytest.mark.parametrize("name", FILTERS)
def test_filter_counts_from_its_microversion_on_and_for_whom_it_is(api: Api, name: str) -> None:
    value, since, public_since = FILTERS[name]
    query = f"{name}={value}"
    for minor in {1, since - 1, since, public_since - 1, public_since, 74, LAST} & set(range(FIRST, LAST + 1)):
        if minor < since and minor >= 75:
            continue
        assert is_applied(api, query, minor, {}) == (minor >= since), f"administrators, 2.{minor}"
        assert is_applied(api, query, minor, MEMBER) == (minor >= public_since), f"members, 2.{minor}"


@pytest.mark.parametrize("name", FILTERS)
def test_of_a_repeated_parameter_the_last_value_counts(api: Api, fleet: ComputeFleet, name: str) -> None:
    if name == "status":
        assert is_applied(api, "status=paused", LAST, {})
        assert not is_applied(api, "status=active&status=paused", LAST, {}), "statuses are united"
        return
    (server,) = api.get("/v2.1/servers/detail", microversion("2.104")).json()["servers"]
    found_by = {
        "tags": "everywhere",
        "tags-any": "everywhere",
        "not-tags": "nowhere",
        "not-tags-any": "nowhere",
        "changes-since": "1999-01-01",
        "changes-before": "2999-01-01",
        "locked": "false",
        "deleted": "false",
        "uuid": server["id"],
        "power_state": "1",
        "progress": "0",
        "launch_index": "0",
        "vm_state": "active",
        "user_id": "ada",
    }
    nothing = FILTERS[name][0]
    if name in found_by:
        assert is_applied(api, f"{name}={found_by[name]}&{name}={nothing}", LAST, {})
        assert not is_applied(api, f"{name}={nothing}&{name}={found_by[name]}", LAST, {})
    else:
        assert is_applied(api, f"{name}=0&{name}={nothing}", LAST, {})


@pytest.mark.parametrize(
    ("query", "headers", "projects"),
    [
        ("", {}, ["demo"]),
        ("all_tenants=1", {}, ["demo", "other"]),
        ("all_tenants", {}, ["demo", "other"]),
        ("all_tenants=0", {}, ["demo"]),
        ("all_tenants=1&all_tenants=0", {}, ["demo"]),
        ("project_id=other", {}, ["demo"]),
        ("tenant_id=other", {}, ["demo"]),
        ("all_tenants=1&project_id=other", {}, ["other"]),
        ("all_tenants=1&tenant_id=other", {}, ["other"]),
        ("all_tenants=1&tenant_id=demo&project_id=other", {}, ["other"]),
        ("all_tenants=1&project_id=other&tenant_id=demo", {}, ["demo"]),
        ("all_tenants=1&project_id=", {}, []),
        ("all_tenants=1&user_id=grace", {}, ["other"]),
        ("user_id=grace", {}, []),
        ("user_id=grace", MEMBER, []),
        ("project_id=other", MEMBER, ["demo"]),
        ("tenant_id=other", MEMBER, ["demo"]),
        ("all_tenants=0", MEMBER, ["demo"]),
        ("all_tenants=no&project_id=other", {"X-Roles": "reader"}, ["demo"]),
        ("", {"X-Project-Id": "other"}, ["other"]),
    ],
)
def test_whose_servers_are_listed(api: Api, query: str, headers: dict[str, str], projects: list[str]) -> None:
    servers = api.get(f"/v2.1/servers/detail?{query}", headers, microversion("2.104")).json()["servers"]
    assert sorted(server["tenant_id"] for server in servers) == projects


@pytest.mark.parametrize("role", ["member", "reader", "manager"])
@pytest.mark.parametrize("query", ["all_tenants=1", "all_tenants=", "status=deleted", "sort_key=host", "sort_key=node"])
def test_what_is_for_administrators_is_refused_to_others(api: Api, role: str, query: str) -> None:
    for path in ("servers", "servers/detail"):
        for version in ("2.1", "2.104"):
            response = api.get(f"/v2.1/{path}?{query}", {"X-Roles": role}, microversion(version))
            assert response.status_code == 403
            assert response.json()["forbidden"]["code"] == 403


@pytest.mark.parametrize("query", ["all_tenants=1&name=[", "sort_key=host&limit=x", "status=deleted&sort_key=name"])
def test_what_is_malformed_is_said_before_what_is_forbidden(api: Api, query: str) -> None:
    assert status(api, query, LAST, MEMBER) == 400


@pytest.mark.parametrize(
    "query",
    ["name=[x", "limit=x", "sort_key=x", "sort_dir=x", "changes-since=x", "all_tenants=x", "locked=x", "tags=[x"],
)
def test_message_names_the_parameter_and_quotes_the_value(api: Api, query: str) -> None:
    name, value = query.split("=")
    message = api.get(f"/v2.1/servers?{query}", microversion("2.104")).json()["badRequest"]["message"]
    assert message.startswith(f"Invalid input for query parameters {name}. Value: {value}. ")


@pytest.mark.parametrize("raw", ["name=%ff", "%ff=1", "name=%ed%a0%80", "name=%00", "na%00me=1", "name=%c3"])
def test_query_must_be_utf_8_without_nul(api: Api, raw: str) -> None:
    for headers in ({}, MEMBER):
        assert status(api, raw, FIRST, headers) == 400


@pytest.mark.parametrize("bad", ["locked=x", "changes-since=2026-11-02T00:00:00Z&changes-before=2026-11-01T00:00:00Z"])
def test_what_is_no_value_is_said_before_what_the_caller_may_not(api: Api, bad: str) -> None:
    answer = api.get(f"/v2.1/servers?all_tenants=1&{bad}", {**MEMBER, **microversion("2.73")})
    assert answer.status_code == 400, answer.text


@pytest.mark.parametrize("face", ["/v2.1/servers", "/v2/servers", "/v2.1/servers/detail"])
def test_a_semicolon_parts_parameters_as_in_nova(api: Api, face: str) -> None:
    assert len(names(api, face, "?name=server;limit=1")) == 1
    assert names(api, face, "?name=server;limit=0") == []
    assert names(api, face, "?name=server%3Blimit=1") == []
    answer = api.get(f"{face}?limit=1;limit=x")
    assert answer.status_code == 400


def test_a_semicolon_is_a_part_of_a_query_of_our_own(api: Api) -> None:
    filter_ = 'name=="a;limit=0"'
    answer = api.get(f"/fleetlight/query?what=instance&fields=name&filter={filter_}")
    assert answer.status_code == 200, answer.text
    assert api.get("/2/instances?bulk=1;x=2").status_code == 400


def names(api: Api, face: str, query: str) -> list[str]:
    answer = api.get(face + query)
    assert answer.status_code == 200, answer.text
    return [each["name"] for each in answer.json()["servers"]]

"""Each rule explains what it is about, and nothing beside it; the names of rules are those of the reference."""

from pathlib import Path
from typing import Any

import pytest

from fleetlight.cli.compare.differences import Answer, differences
from fleetlight.cli.compare.explained import RULES, Compared, explanation, waiting_in
from fleetlight.cli.compare.questions import Question

PAGE = Path(__file__).parents[4] / "docs" / "operations" / "compare-with-nova.md"
ONE = "11111111-1111-4111-8111-111111111111"
TWO = "22222222-2222-4222-8222-222222222222"
THREE = "33333333-3333-4333-8333-333333333333"
ZONE, STATE = "OS-EXT-AZ:availability_zone", "OS-EXT-STS:vm_state"
NOW, LONG_AGO = "2026-11-29T12:00:00Z", "2026-01-02T03:04:05Z"
NOW_S = 1_795_953_600.0


def listed(*rows: dict[str, Any]) -> Answer:
    return Answer(200, {"servers": list(rows)})


def cut(*rows: dict[str, Any]) -> Answer:
    """A page with more behind it."""
    link = {"rel": "next", "href": f"http://nova/v2.1/servers/detail?marker={rows[-1]['id']}"}
    return Answer(200, {"servers": list(rows), "servers_links": [link]})


def updated(at: str) -> Answer:
    return Answer(200, {"servers": [row(created=LONG_AGO, updated=at)]}, at_s=NOW_S)


def row(server: str = ONE, **values: Any) -> dict[str, Any]:
    return {"id": server, "name": "web", "status": "ACTIVE", "hostId": "a", **values}


def named(question: Question, nova: Answer, ours: Answer, **marker: object) -> set[str | None]:
    waiting = {*waiting_in(nova), *waiting_in(ours)}
    compared = Compared(question, nova, ours, waiting, marker)
    return {explanation(compared, each) for each in differences(question, nova, ours)}


def asked(query: str = "", path: str = "/servers/detail") -> Question:
    pairs = [each.partition("=") for each in query.split("&") if each]
    return Question(path, tuple((name, value) for name, _, value in pairs), "2.96")


HOST = {"OS-EXT-SRV-ATTR:host": "compute1"}
BUILDING = row(TWO, status="BUILD", hostId="")
FAULT = {"itemNotFound": {"code": 404, "message": "none"}}


@pytest.mark.parametrize(
    ("rule", "question", "nova", "ours"),
    [
        ("build-requests", asked(), listed(BUILDING, row()), listed(row(), BUILDING)),
        ("build-requests", asked(), listed(row()), listed(row(), BUILDING)),
        ("build-requests", asked(), listed(row(), BUILDING), listed(row(), row(TWO, created="now"))),
        ("build-requests", asked("limit=2"), listed(BUILDING, row()), listed(row(), row(THREE))),
        ("build-requests", asked("host=a"), listed(BUILDING), listed()),
        ("build-requests", asked(), cut(BUILDING), cut(row())),
        (
            "build-requests",
            asked("", f"/servers/{TWO}"),
            Answer(200, {"server": BUILDING}),
            Answer(200, {"server": row(TWO)}),
        ),
        ("never-updated", asked(), updated(NOW), updated(LONG_AGO)),
        (
            "host-status-of-deleted",
            asked("deleted=1"),
            listed(row(status="DELETED", host_status="")),
            listed(row(status="DELETED", host_status="UP")),
        ),
        (
            "host-status-of-deleted",
            asked("deleted=1"),
            listed(row(status="DELETED", **HOST), row(TWO, host_status="", **HOST)),
            listed(row(status="DELETED", **HOST), row(TWO, host_status="UP", **HOST)),
        ),
        ("zone-of-the-row", asked(), listed(row(**{ZONE: "east"})), listed(row(**{ZONE: "nova"}))),
        ("empty-networks", asked(), listed(row(addresses={"a": [], "b": [1]})), listed(row(addresses={"b": [1]}))),
        ("no-security-groups", asked(), listed(row(security_groups=[{"name": "a"}])), listed(row())),
        ("hidden-server", asked("", f"/servers/{ONE}"), Answer(403, {}), Answer(404, FAULT)),
        (
            "text-order",
            asked("sort_key=display_name&sort_dir=asc"),
            listed(row(ONE, name="a"), row(TWO, name="B")),
            listed(row(TWO, name="B"), row(ONE, name="a")),
        ),
        (
            "text-order",
            asked("sort_key=project_id&sort_key=display_name&sort_dir=desc&sort_dir=asc"),
            listed(row(THREE, tenant_id="2"), row(ONE, name="a", tenant_id="1"), row(TWO, name="B", tenant_id="1")),
            listed(row(THREE, tenant_id="2"), row(TWO, name="B", tenant_id="1"), row(ONE, name="a", tenant_id="1")),
        ),
        (
            "text-order",
            asked("sort_key=key_name&limit=1"),
            cut(row(ONE, key_name=None)),
            cut(row(TWO, key_name="a")),
        ),
        (
            "text-order",
            asked("sort_key=display_name&sort_dir=asc&marker=x"),
            listed(row(ONE, name="a"), row(THREE, name="c")),
            listed(row(THREE, name="c")),
        ),
        ("text-order", asked("sort_key=hostname&limit=1"), cut(row(ONE)), cut(row(TWO))),
        ("text-of-the-database", asked("name=WEB"), listed(row()), listed()),
        ("text-of-the-database", asked("tags=blue"), listed(row(tags=["Blue"])), listed()),
        ("text-of-the-database", asked("name=caf"), listed(row(name="čaf")), listed()),
        ("sorted-nulls", asked("sort_key=node"), Answer(500, {}), listed()),
        ("sorted-nulls", asked(f"sort_key=vm_state&marker={ONE}"), listed(), listed(row(TWO, **{STATE: None}))),
        ("uuid-and-marker", asked(f"uuid={ONE}&marker={TWO}"), listed(row()), listed()),
        ("refused-pattern", asked("name=(?=a)"), listed(), Answer(400, {})),
    ],
)
def test_rule_explains_what_it_is_about(rule: str, question: Question, nova: Answer, ours: Answer) -> None:
    assert named(question, nova, ours) == {rule}


@pytest.mark.parametrize(
    ("question", "nova", "ours"),
    [
        # No build request is in sight.
        (asked(), listed(row(ONE), row(TWO)), listed(row(TWO), row(ONE))),
        # Others have moved too.
        (asked(), listed(BUILDING, row(), row(THREE)), listed(row(THREE), BUILDING, row())),
        # More rows are elsewhere than servers wait.
        (asked("limit=2"), listed(row(), BUILDING), listed(row(THREE), row(TWO.replace("2", "4")), row("5"))),
        # A list of all servers has those that wait.
        (asked("all_tenants=1&sort_key=uuid"), listed(BUILDING), listed()),
        # No cell changes what was asked for, nor the link to it.
        (asked(), listed(BUILDING), listed(row(TWO, name="other"))),
        (asked(), listed({**BUILDING, "links": []}), listed({**BUILDING, "links": [1]})),
        # Nova shows it in its cell.
        (asked(), listed(row(TWO)), listed(BUILDING)),
        (asked(), updated(NOW), updated("2026-02-03T04:05:06Z")),
        # Not the moment of the answer.
        (asked(), updated("2026-11-29T11:50:00Z"), updated(LONG_AGO)),
        (asked(), updated("yesterday"), updated(LONG_AGO)),
        # Without a host both have the zone of the row.
        (asked(), listed(row(hostId="", **{ZONE: "east"})), listed(row(hostId="", **{ZONE: "nova"}))),
        # The row belongs before the last one of our page.
        (
            asked("sort_key=display_name&sort_dir=asc&limit=2"),
            cut(row(ONE, name="a"), row(TWO, name="b")),
            cut(row(ONE, name="a"), row(THREE, name="c")),
        ),
        # Neither page has another one beside it.
        (asked("sort_key=display_name&limit=9"), listed(row(ONE)), listed()),
        (asked("sort_key=display_name&limit=9"), listed(), listed(row(ONE))),
        (asked("sort_key=hostname&limit=9"), listed(row(ONE)), listed()),
        (asked(), listed(row(status="ACTIVE", host_status="")), listed(row(status="ACTIVE", host_status="UP"))),
        (asked(), listed(row(**{ZONE: "east"})), listed(row())),
        (asked(), listed(row(addresses={"b": [2]})), listed(row(addresses={"b": [1]}))),
        (asked(), listed(row(security_groups=[{"name": "a"}])), listed(row(security_groups=[]))),
        (asked("", f"/servers/{ONE}"), Answer(404, FAULT), Answer(403, {})),
        (asked("", "/servers/detail"), Answer(403, {}), Answer(404, FAULT)),
        # Not by code point either.
        (
            asked("sort_key=display_name&sort_dir=asc"),
            listed(row(ONE, name="a"), row(TWO, name="b")),
            listed(row(TWO, name="b"), row(ONE, name="a")),
        ),
        # The order of the key before the text.
        (
            asked("sort_key=project_id&sort_key=display_name&sort_dir=asc"),
            listed(row(ONE, name="a", tenant_id="1"), row(TWO, name="b", tenant_id="2")),
            listed(row(TWO, name="b", tenant_id="2"), row(ONE, name="a", tenant_id="1")),
        ),
        (asked("sort_key=created_at"), listed(row(ONE), row(TWO)), listed(row(TWO), row(ONE))),
        (asked(), Answer(500, {}), listed()),
        (asked("sort_key=node"), listed(), Answer(500, {})),
        # The row has a value.
        (asked(f"sort_key=vm_state&marker={ONE}"), listed(), listed(row(TWO, **{STATE: "active"}))),
        # The row is not the one that is asked for, or there is no marker.
        (asked(f"uuid={ONE}&marker={TWO}"), listed(row(THREE)), listed()),
        (asked(f"uuid={ONE}"), listed(row()), listed()),
        # Another server of the host comes first, which is not deleted.
        (
            asked("deleted=1"),
            listed(row(**HOST), row(TWO, host_status="", **HOST)),
            listed(row(**HOST), row(TWO, host_status="UP", **HOST)),
        ),
        # It comes behind the marker.
        (asked(f"uuid={TWO}&marker={ONE}&sort_key=uuid&sort_dir=asc"), listed(row(TWO)), listed()),
        # It is found with the case of letters.
        (asked("name=web"), listed(row()), listed()),
        (asked("name=a"), listed(), Answer(400, {})),
    ],
)
def test_rule_explains_nothing_beside_that(question: Question, nova: Answer, ours: Answer) -> None:
    assert None in named(question, nova, ours)


def test_next_link_of_repeated_parameters_is_explained_for_these_alone() -> None:
    question = asked("sort_key=a&sort_key=b&limit=1")

    def linked(query: str) -> Answer:
        href = f"http://nova/v2.1/servers/detail?{query}"
        return Answer(200, {"servers": [row()], "servers_links": [{"rel": "next", "href": href}]})

    nova, ours = linked("limit=1&marker=x&sort_key=b"), linked("limit=1&marker=x&sort_key=a&sort_key=b")
    assert named(question, nova, ours) == {"repeated-parameters"}
    assert named(question, nova, linked("limit=2&marker=x&sort_key=b")) == {None}


def test_page_for_operators_has_every_rule() -> None:
    text = PAGE.read_text()
    assert [rule.name for rule in RULES if f"`{rule.name}`" not in text] == []


def test_page_behind_a_build_request_has_other_rows_and_a_page_behind_another_server_has_not() -> None:
    question, ours = asked(f"marker={TWO}"), listed(row(THREE))
    for nova in (listed(row()), Answer(400, {})):
        found = differences(question, nova, ours)
        assert {explanation(Compared(question, nova, ours, {TWO}), each) for each in found} == {"build-requests"}
        assert {explanation(Compared(question, nova, ours), each) for each in found} == {None}


NULL, RUNNING = {STATE: None}, row(**{STATE: "active"})
BEFORE, BEHIND, LAST = row(ONE, **NULL), row(THREE, **NULL), row(THREE.replace("3", "4"), **NULL)


@pytest.mark.parametrize(
    ("nova", "ours", "is_explained"),
    [
        # Nova goes on by the id alone.
        (listed(RUNNING), listed(), True),
        (listed(BEFORE), listed(), True),
        (listed(), listed(BEHIND), True),
        (cut(LAST), cut(BEHIND), True),
        # These belong behind the marker, or do not.
        (listed(BEHIND), listed(), False),
        (cut(BEHIND), cut(LAST), False),
        (listed(), listed(RUNNING), False),
        (listed(), listed(BEFORE), False),
    ],
)
def test_page_behind_a_marker_that_nova_shows_without_a_value_has_other_rows(
    nova: Answer, ours: Answer, is_explained: bool
) -> None:
    question, marker = asked(f"sort_key=vm_state&marker={TWO}"), row(TWO, **NULL)
    found = differences(question, nova, ours)
    assert all(explanation(Compared(question, nova, ours, marker=marker), each) for each in found) is is_explained


def test_values_of_a_marker_count_where_they_are_missing_and_sorted_by() -> None:
    question, plain = asked(f"sort_key=vm_state&marker={TWO}"), asked(f"marker={TWO}")
    assert named(question, listed(RUNNING), listed(), **row(TWO, **NULL)) == {"sorted-nulls"}
    assert named(question, listed(RUNNING), listed(), **row(TWO, **{STATE: "active"})) == {None}
    assert named(question, listed(RUNNING), listed()) == {None}
    assert named(plain, listed(RUNNING), listed(), **row(TWO, **NULL)) == {None}

"""Reports: what they say of what was found, in each form, and that they have no secrets."""

import json
from html.parser import HTMLParser
from typing import Any

import pytest

from fleetlight.cli.compare.cases import Case, Round
from fleetlight.cli.compare.differences import Answer
from fleetlight.cli.compare.questions import DETAILED, Question
from fleetlight.cli.compare.report import as_html, example_lines, facts, latency_rows, rows, verdict
from fleetlight.cli.compare.tally import Tally

NOVA, OURS = "http://nova:8774/v2.1", "https://fleetlight/v2.1"
SERVER = "11111111-1111-4111-8111-111111111111"
EVIL = "<script>alert('&')</script>"
TIMES = {"begun_at": "2026-11-29T12:00:00+00:00", "ended_at": "2026-11-29T12:10:00+00:00", "microversion": "2.104"}


def answered(duration_s: float = 0.01, complete: str = "true", values: Any = None, **more: Any) -> Answer:
    headers = {"Fleetlight-Complete": complete, "Fleetlight-Route": "a=index;watermark=1;age=0.5, b=live"}
    return Answer(200, {"servers": [{"id": SERVER, **(values or {}), **more}]}, headers, duration_s)


def report(*pairs: tuple[Answer, Answer], query: str = "x") -> dict[str, Any]:
    tally = Tally()
    for nova, ours in pairs:
        case = Case(Question(DETAILED, (("name", query),), "2.96"), 1.0)
        for now_s in (0.0, 5.0):
            case.judge(Round(nova, ours, nova), now_s)
        tally.add(case, {})
    return tally.document(NOVA, OURS) | TIMES


def test_verdict_says_what_was_compared() -> None:
    same, other = answered(name="a"), answered(name="b")
    assert verdict(report()) == "Nothing was compared."
    assert verdict(report((same, same))) == "No difference in 1 requests: 1 the same."
    assert verdict(report((same, same), (same, other))) == "1 of 2 requests differ: 1 the same."


def test_class_is_shown_with_two_lines_of_curl_that_can_be_pasted() -> None:
    found = report((answered(name="a"), answered(name="b")), query="it's")
    [line, nova, ours] = example_lines(found["differences"][0])
    assert line == f"value of name: name of server {SERVER} (Fleetlight-Complete: true)"
    assert (nova, ours) == ('    Nova:       "a"', '    Fleetlight: "b"')
    start = "curl -s -H \"X-Auth-Token: $OS_TOKEN\" -H 'OpenStack-API-Version: compute 2.96' "
    assert found["differences"][0]["curl"] == [f"{start}'{url}/servers/detail?name=it%27s'" for url in (NOVA, OURS)]
    assert [len(row) for row in rows(found)] == [6]


def test_latencies_and_complete_answers_are_counted() -> None:
    pairs = [(answered(0.001 * number), answered(0.0001 * number)) for number in range(1, 101)]
    found = report(*pairs, (answered(), answered(complete="false")))
    assert [found["complete"], found["not_complete"], found["routes"]] == [100, 1, {"index": 101, "live": 101}]
    assert next(facts(found)).startswith("Fleetlight said of 100 of 101 answers that they are complete")
    [whole, kind] = latency_rows(found)
    assert whole[1:] == kind[1:] == ["101", "50.0", "99.0", "5.1", "10.0", "9.8"]


@pytest.mark.parametrize("key", ["metadata", "OS-EXT-SRV-ATTR:user_data"])
def test_what_users_keep_secrets_in_is_not_shown(key: str) -> None:
    nova, ours = (answered(values={key: {"password": f"hunter{number}"}}) for number in (2, 3))
    found = report((nova, ours))
    for text in (json.dumps(found), as_html(found), *example_lines(found["differences"][0])):
        assert "hunter" not in text
    assert found["differences"][0]["nova"] == "22 characters, not shown"


def test_long_values_are_shown_where_they_begin_to_differ() -> None:
    found = report((answered(name="x" * 5000 + "a"), answered(name="x" * 5000 + "b")))["differences"][0]
    assert found["nova"].endswith('xa"')
    assert found["fleetlight"].endswith('xb"')
    assert len(found["nova"]) < 210


class Page(HTMLParser):
    """What a page has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def test_page_loads_nothing_and_runs_nothing_whatever_servers_are_called() -> None:
    page = Page(as_html(report((answered(name=EVIL), answered(name="b")), query=EVIL)))
    assert not page.tags & {"script", "link", "img", "iframe"}
    assert page.attributes == {"charset", "class", "lang"}
    assert EVIL in page.text
    assert "1 of 1 requests differ" in page.text

"""Lines of access logs as programs write them with their usual formats, and logs that go on or repeat themselves."""

import io
import os
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from fleetlight.cli.compare.access_log import STANDARD_INPUT, LogQuestions, question_in, questions_in
from fleetlight.cli.compare.questions import Question

SERVER = "8a02cae4-35a0-431a-ac44-7d07a29b5ead"
PROJECT = "6f70656e737461636b20342065766572"
ALL = (("all_tenants", "1"),)
NOVA = (
    "2026-11-29 12:00:00.123 7 INFO nova.osapi_compute.wsgi.server [None req-0f1c2a51-8d6f-4b39-9c35-5a3a1d2f7c44 "
    f'33333 {PROJECT} - - default default] 10.0.0.4 "GET %s HTTP/1.1" status: 200  len: 12345 time: 0.1234567'
)
NOVA_BEHIND_WSGI = (
    "2026-11-29 12:00:00.123 25 INFO nova.api.openstack.requestlog [None req-0f1c2a51-8d6f-4b39-9c35-5a3a1d2f7c44 "
    'admin admin - - default default] 10.0.0.4 "GET %s" status: 200 len: 512 microversion: 2.96 time: 0.118273'
)
UWSGI = (
    "[pid: 1234|app: 0|req: 17/63] 10.0.0.4 () {62 vars in 1256 bytes} [Sun Nov 29 12:00:00 2026] GET %s => generated "
    "4242 bytes in 118 msecs (HTTP/1.1 200) 9 headers in 405 bytes (1 switches on core 0)"
)
HAPROXY = (
    "Nov 29 12:00:00 lb1 haproxy[14389]: 10.0.0.4:33317 [29/Nov/2026:12:00:00.655] nova-api~ nova-api/ctl1 "
    '10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {nova.example.org|openstacksdk} {} "GET %s HTTP/1.1"'
)
NGINX = '10.0.0.4 - - [29/Nov/2026:12:00:00 +0000] "GET %s HTTP/1.1" 200 2750 "-" "openstacksdk/4.5.0 keystoneauth1"'
APACHE = 'nova.example.org:8774 10.0.0.4 - - [29/Nov/2026:12:00:00 +0000] "GET %s HTTP/1.1" 200 2750 "-" "curl/8.5.0"'
FORMATS = (NOVA, NOVA_BEHIND_WSGI, UWSGI, HAPROXY, NGINX, APACHE)


@pytest.mark.parametrize("line", FORMATS)
def test_list_is_found_in_the_line_of_each_program(line: str) -> None:
    version = "2.96" if line is NOVA_BEHIND_WSGI else ""
    target = "/v2.1/servers/detail?all_tenants=1&limit=5"
    assert question_in(line % target) == Question("/servers/detail", (*ALL, ("limit", "5")), version)


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/v2.1/servers", "/servers"),
        ("/v2.1/servers/", "/servers"),
        (f"/v2.1/servers/{SERVER}", f"/servers/{SERVER}"),
        (f"/v2.1/{PROJECT}/servers/detail", "/servers/detail"),
        ("/compute/v2.1/servers/detail", "/servers/detail"),
        (f"/v2/{PROJECT}/servers/{SERVER}", f"/servers/{SERVER}"),
        ("https://nova.example.org:8774/v2.1/servers/detail", "/servers/detail"),
    ],
)
def test_address_is_found_wherever_the_api_is(target: str, path: str) -> None:
    assert question_in(HAPROXY % target) == Question(path, (), "")


@pytest.mark.parametrize(
    "line",
    [
        "",
        "a line of something else",
        NGINX.replace("GET", "POST") % "/v2.1/servers",
        NGINX % "/v2.1/flavors/detail",
        NGINX % f"/v2.1/servers/{SERVER}/action",
        NGINX % f"/v2.1/servers/{SERVER}/os-interface",
        NGINX % "/v3/auth/tokens",
        NGINX % "//[/v2.1/servers",
        HAPROXY % "/v2.1/servers/detail?name=a-name-that-was-too-lo"[:-30] + '"<BADREQ>"',
        (HAPROXY % "/v2.1/servers/detail?name=cut")[: -len(' HTTP/1.1"')],
    ],
)
def test_line_of_anything_else_is_left_out(line: str) -> None:
    assert question_in(line) is None


def test_parameters_are_asked_as_they_were() -> None:
    target = "/v2.1/servers?name=%E5%90%8D%2B&sort_key=uuid&sort_key=host&image=&tags=a%2Cb"
    found = question_in(NGINX % target)
    assert found is not None
    assert found.parameters == (
        ("name", "名+"),
        ("sort_key", "uuid"),
        ("sort_key", "host"),
        ("image", ""),
        ("tags", "a,b"),
    )
    assert found.target == target.removeprefix("/v2.1")


def test_bytes_that_are_no_text_are_asked_as_they_were() -> None:
    for target in ("/v2.1/servers?name=%FF", r"/v2.1/servers?name=\xFF"):
        found = question_in(NGINX % target)
        assert found is not None
        assert found.target == "/servers?name=%FF"


def test_request_of_unknown_microversion_is_asked_at_the_oldest_and_the_newest() -> None:
    assert [each.version for each in questions_in(NGINX % "/v2.1/servers", "2.104")] == ["2.1", "2.104"]
    assert [each.version for each in questions_in(NOVA_BEHIND_WSGI % "/v2.1/servers", "2.104")] == ["2.96"]
    assert questions_in("nothing", "2.104") == ()


LINE = '10.0.0.4 "GET /v2.1/servers?limit=%s" status: 200 len: 512 microversion: 2.96 time: 0.1\n'


def asked(limit: int) -> Question:
    return Question("/servers", (("limit", str(limit)),), "2.96")


def test_request_is_asked_again_after_five_minutes(tmp_path: Path) -> None:
    log, now_s = tmp_path / "access.log", [0.0]
    log.write_text(LINE % 1 + LINE % 1 + "something else\n" + LINE % 2 + LINE % 1)
    questions = LogQuestions(log, "2.104", lambda: now_s[-1])
    found = iter(questions)
    assert [next(found), next(found)] == [asked(1), asked(2)]
    now_s.append(301.0)
    assert list(found) == [asked(1)]
    assert questions.skipped == 2


def test_questions_that_are_remembered_have_a_bound(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    log.write_text("".join(LINE % number for number in [*range(10_001), 0, 10_000]))
    found = [each for each in LogQuestions(log, "2.104") if each in (asked(0), asked(10_000))]
    assert found == [asked(0), asked(10_000), asked(0)]


def test_log_that_is_no_text_is_read(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    log.write_bytes(b"\xff\xfe\x00\n" + (LINE % 1).encode())
    assert list(LogQuestions(log, "2.104")) == [asked(1)]


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.TextIOWrapper]:
    """What writes to standard input."""
    reading, writing = os.pipe()
    with os.fdopen(reading) as read, os.fdopen(writing, "w") as write:
        monkeypatch.setattr(sys, "stdin", read)
        yield write


def test_input_that_has_no_line_yet_keeps_nobody_waiting(typed: io.TextIOWrapper) -> None:
    questions = iter(LogQuestions(STANDARD_INPUT, "2.104"))
    assert next(questions) is None
    typed.write(LINE % 1)
    typed.flush()
    assert next(each for each in islice(questions, 100) if each is not None) == asked(1)
    typed.close()
    assert [each for each in questions if each is not None] == []

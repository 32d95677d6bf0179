import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from fleetlight.query.errors import NotExpressibleError, RegularExpressionError
from fleetlight.query.regex import compile_pattern, to_lucene, to_postgres
from fleetlight.query.regex_syntax import _MAX_NESTING
from fleetlight.query.sqlite_functions import register_functions


@pytest.mark.parametrize(
    ("pattern", "lucene", "postgres"),
    [
        ("web", ".*web.*", "web"),
        ("", ".*.*", "(?:)"),
        ("^web-", r"web\-.*", r"^web\-"),
        (r"\.example$", r".*\.example", r"\.example$"),
        ("^web$", "web", "^web$"),
        (r"\Aweb\z", "web", "^web$"),
        ("web-[0-9]+", r".*web\-[0-9]+.*", r"web\-[0-9]+"),
        ("a|b", ".*a.*|.*b.*", "a|b"),
        ("^(a|b)c", "(a|b)c.*", "^(?:a|b)c"),
        (r"(^|\.)x$", r"x|.*\.x", r"^x$|\.x$"),
        ("^.*$", "[^\n]*", "^[^\n]*$"),
        ("^a{2,3}?b{4,}c{0}$", "a{2,3}b{4,}()", "^a{2,3}b{4,}(?:)$"),
        (r'^@#&<>~"$', r"\@\#\&\<\>\~\"", r"^\@\#\&\<\>\~\"$"),
        (r"^[\w.-]\D$", r"[0-9A-Z\_a-z\.\-][^0-9]", r"^[0-9A-Z\_a-z\.\-][^0-9]$"),
        ("^[é-😀]$", "[é-😀]", "^[é-😀]$"),
        (r"^[^a]\W$", r"[^a][^0-9A-Z\_a-z]", r"^[^a][^0-9A-Z\_a-z]$"),
    ],
)
def test_pattern_of_the_subset_is_translated(pattern: str, lucene: str, postgres: str) -> None:
    assert to_lucene(pattern) == lucene
    assert to_postgres(pattern) == postgres


def test_groups_beside_each_other_are_not_nested() -> None:
    assert to_postgres("^(a)(b)" + "(" * _MAX_NESTING + "c" + ")" * _MAX_NESTING)
    with pytest.raises(NotExpressibleError, match="groups nested so deeply") as refused:
        to_postgres("(" * (_MAX_NESTING + 1) + "c" + ")" * (_MAX_NESTING + 1))
    assert refused.value.target == "PostgreSQL"
    assert refused.value.what.startswith("groups nested so deeply in '((")


@pytest.mark.parametrize(
    "pattern",
    [
        "(?i)a",
        "(?P<name>a)",
        r"\bweb",
        r"\x41",
        r"\pL",
        r"\Qa\E",
        "[[:alpha:]]",
        "[]a]",
        "{",
        "a{,3}",
        "(^a)*",
        "a^b",
        "a$b",
    ],
)
@pytest.mark.parametrize("translate", [to_lucene, to_postgres])
def test_pattern_outside_of_the_subset_is_left_to_another_route(translate: Callable[[str], str], pattern: str) -> None:
    compile_pattern(pattern)
    with pytest.raises(NotExpressibleError):
        translate(pattern)


WIDE = "".join(chr(0x4E00 + 2 * number) for number in range(60))


# Those which it refuses by itself: tests/integration/test_list_patterns_real.py.
@pytest.mark.parametrize(
    "pattern",
    ["x" * 1001, "(a{30}){30}", "(a?){1000}" * 4, "a?" * 201, r"(\w?){51}", f"([{WIDE}]?){{4}}", f"[^{WIDE}]*a.{{8}}"],
)
def test_pattern_that_would_hurt_elasticsearch_is_not_sent_there(pattern: str) -> None:
    with pytest.raises(NotExpressibleError, match="Elasticsearch"):
        to_lucene(pattern)


@pytest.mark.parametrize("pattern", ["a{256}", "(a{200}){5}b{200}" * 3, "a\0"])
def test_pattern_that_postgresql_would_refuse_is_not_sent_there(pattern: str) -> None:
    with pytest.raises(NotExpressibleError, match="PostgreSQL"):
        to_postgres(pattern)


@pytest.mark.parametrize("pattern", ["(", "a**", "[", "*", r"(?=a)", r"(a)\1", "a{1001}", "[b-a]", "\ud800"])
@pytest.mark.parametrize("use", [compile_pattern, to_lucene, to_postgres])
def test_bad_pattern_is_refused_with_the_reason(use: Callable[[str], object], pattern: str) -> None:
    with pytest.raises(RegularExpressionError) as raised:
        use(pattern)
    assert raised.value.reason


@pytest.mark.parametrize(
    ("pattern", "text", "is_found"),
    [
        ("b", "abc", True),
        ("B", "abc", False),
        ("a$", "a\n", False),
        ("^b", "a\nb", False),
        ("a.", "a\n", False),
        ("[^b]", "\n", True),
        ("^.$", "😀", True),
        (r"\w", "é", False),
        ("b", "a\0b", True),
    ],
)
def test_search_means_the_same_in_python_and_sqlite(pattern: str, text: str, is_found: bool) -> None:
    connection = sqlite3.connect(":memory:")
    register_functions(connection)
    in_sqlite = connection.execute("SELECT re2_search(?, ?)", (pattern, text)).fetchone()
    connection.close()
    assert (compile_pattern(pattern).search(text) is not None) == is_found
    assert in_sqlite == (is_found,)


def test_hostile_pattern_takes_linear_time() -> None:
    assert compile_pattern("(a*)*b").search("a" * 50_000) is None


_CHARACTERS = [chr(0x4E00 + number) for number in range(800)]


@pytest.mark.parametrize(
    "pattern",
    [
        "(a?){1000}" * 8,
        "(a?){1000}" * 99,
        ".{60}" + "".join(_CHARACTERS),
        "".join(f"[^{character}]" for character in _CHARACTERS[:240]),
    ],
)
def test_hostile_pattern_is_found_out_without_the_work_it_would_be(pattern: str) -> None:
    started_s = time.thread_time()
    with suppress(NotExpressibleError):
        to_lucene(pattern)
    # The API does this in its event loop.
    assert time.thread_time() - started_s < 0.5


@pytest.mark.parametrize("translate", [to_lucene, to_postgres])
def test_pattern_of_deep_groups_is_left_to_another_route(translate: Callable[[str], str]) -> None:
    assert translate("(" * 30 + "a" + ")" * 30)
    for depth in (31, 900):
        pattern = "(" * depth + "a" + ")" * depth
        assert compile_pattern(pattern).search("a")
        with pytest.raises(NotExpressibleError):
            translate(pattern)

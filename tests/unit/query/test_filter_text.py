"""The text syntax of filters, by the tables of the contract."""

from contextlib import suppress

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from fleetlight.query.errors import FilterTextError
from fleetlight.query.filter_text import from_arguments, name_pattern, parse_filter

READ = {
    "f": ["?", "f"],
    'f == "v"': ["==", "f", "v"],
    "f = 'v'": ["==", "f", "v"],
    "f != 5": ["!=", "f", 5],
    "f < -5": ["<", "f", -5],
    "f <= +5": ["<=", "f", 5],
    "f>5": [">", "f", 5],
    "f >= 0": [">=", "f", 0],
    '"v" in f': ["=[]", "f", "v"],
    "5 not in f": ["!", ["=[]", "f", 5]],
    "f =~ m/re/": ["=~", "f", "re"],
    "f =~ /re/is": ["=~", "f", "(?is)re"],
    "f =~ m/re/si": ["=~", "f", "(?is)re"],
    "f =~ m/re/ssss": ["=~", "f", "(?ssss)re"],
    "f !~ #re#": ["!", ["=~", "f", "re"]],
    "f =~ m^re^": ["=~", "f", "re"],
    "f =~ m|re|": ["=~", "f", "re"],
    r"f =~ m/a\/b/": ["=~", "f", "a/b"],
    r"f =~ m#a\d\.#": ["=~", "f", r"a\d\."],
    'f =* "*.site"': ["=~", "f", r"^[^.]*\.site(\..*)?$"],
    'f !* "web?"': ["!", ["=~", "f", r"^web[^.](\..*)?$"]],
    "not x": ["!", ["?", "x"]],
    "not not a": ["!", ["!", ["?", "a"]]],
    "a and b and c": ["&", ["?", "a"], ["?", "b"], ["?", "c"]],
    "a or b or c": ["|", ["?", "a"], ["?", "b"], ["?", "c"]],
    "a or b and not c": ["|", ["?", "a"], ["&", ["?", "b"], ["!", ["?", "c"]]]],
    "not a and b": ["&", ["!", ["?", "a"]], ["?", "b"]],
    "a and (b or c)": ["&", ["?", "a"], ["|", ["?", "b"], ["?", "c"]]],
    "((a))": ["?", "a"],
    "TRUE": ["?", "TRUE"],
    "A == 1": ["==", "A", 1],
    "notxyz": ["?", "notxyz"],
    "order and inner": ["&", ["?", "order"], ["?", "inner"]],
    "be/memory>1\n\tand nic.ip/0=='::1'": ["&", [">", "be/memory", 1], ["==", "nic.ip/0", "::1"]],
    r'f == "a\"b"': ["==", "f", r"a\"b"],
    'f == "it\'s"': ["==", "f", "it's"],
}

REFUSED = (
    "name == x",
    "num == 5.5",
    "a-b == 1",
    "()",
    "",
    "  ",
    "a && b",
    "a AND b",
    "name <> v",
    "=>",
    "=<",
    "f => 1",
    "name =~ /x#",
    "f =~ m|x|I",
    "name=~m#a#g",
    "f =~ m/(/",
    r"f =~ m/(a)\1/",
    "x in",
    '"a" in',
    "a b",
    'f == "x',
    "a and",
    "not",
    "(a",
    "a)",
    "5",
    "f == 1 2",
    f"f == {'9' * 5000}",
)


@pytest.mark.parametrize(("text", "expression"), READ.items())
def test_text_is_read_as_the_contract_says(text: str, expression: list[object]) -> None:
    assert parse_filter(text) == expression


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_filter_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(FilterTextError) as refused:
        parse_filter(text)
    shown, mark, reason = refused.value.details
    assert str(refused.value).startswith(f"Failed to parse query filter '{text}': ")
    assert shown == (text.splitlines() or [""])[refused.value.line - 1]
    assert mark == " " * (refused.value.column - 1) + "^"
    assert len(mark) <= len(shown) + 1
    assert reason


def test_mark_stands_under_what_was_not_expected() -> None:
    with pytest.raises(FilterTextError) as refused:
        parse_filter("a and\nnum == 5.5")
    assert refused.value.details[:2] == ("num == 5.5", "        ^")


def test_mark_stands_behind_a_text_that_ends_too_soon() -> None:
    with pytest.raises(FilterTextError) as refused:
        parse_filter("a == ")
    assert refused.value.details[:2] == ("a == ", "     ^")


@pytest.mark.parametrize(
    ("glob", "found", "others"),
    [
        ("*.site", ["a.site", "a.site.example"], ["a.b.site", "asite", "a.sites"]),
        ("web?", ["web1", "web1.example.com"], ["web", "web10", "xweb1"]),
        ("a+b", ["a+b"], ["aab"]),
    ],
)
def test_star_and_question_mark_stay_between_two_dots(glob: str, found: list[str], others: list[str]) -> None:
    import re  # noqa: PLC0415 -- not the engine of the product

    pattern = re.compile(name_pattern(glob))
    assert all(pattern.search(name) for name in found)
    assert not any(pattern.search(name) for name in others)


@pytest.mark.parametrize(
    ("arguments", "expression"),
    [
        ([], None),
        (["web1"], ["|", ["==", "name", "web1"]]),
        (
            ["web1", "db*"],
            ["&", ["!=", "name", ""], ["|", ["==", "name", "web1"], ["=~", "name", r"^db[^.]*(\..*)?$"]]],
        ),
        (["foo/bar"], ["?", "foo/bar"]),
        (['status == "running"'], ["==", "status", "running"]),
    ],
)
def test_arguments_of_a_command_are_names_or_one_filter(arguments: list[str], expression: list[object] | None) -> None:
    assert from_arguments(arguments) == expression


def test_argument_that_is_said_to_be_a_filter_is_one() -> None:
    assert from_arguments(["admin_up"], is_filter=True) == ["?", "admin_up"]


@pytest.mark.parametrize("arguments", [[], ["a", "b"]])
def test_exactly_one_argument_can_be_a_filter(arguments: list[str]) -> None:
    with pytest.raises(FilterTextError, match="Exactly one argument"):
        from_arguments(arguments, is_filter=True)


_FILTERS = st.lists(st.sampled_from(sorted(READ)), min_size=1, max_size=3).map(" and ".join)
_PIECES = st.sampled_from(sorted({piece for text in READ for piece in text.split()})) | st.text(max_size=4)


@given(_FILTERS | st.lists(_PIECES, max_size=8).map(" ".join))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Made of what filters are made of: one of letters by chance ends at the first."""
    with suppress(FilterTextError):
        read = parse_filter(text)
        event("read")
        assert isinstance(read, list)


def test_brackets_inside_each_other_need_no_depth_of_calls() -> None:
    assert parse_filter("(" * 5000 + "a" + ")" * 5000) == ["?", "a"]

"""The report of a comparison, from its JSON: lines of text, rows of a table, and a page of HTML; pure."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

COLUMNS = ("CLASS", "REQUESTS", "DIFFERENCES", "NOVA", "FLEETLIGHT", "CURL")
LATENCY_COLUMNS = ("REQUEST", "REQUESTS", "NOVA P50 MS", "P99", "FLEETLIGHT P50 MS", "P99", "TIMES AS FAST")
_LATENCIES = (
    *("request", "requests", "nova_p50_ms", "nova_p99_ms", "fleetlight_p50_ms", "fleetlight_p99_ms"),
    "times_as_fast",
)
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
html { color-scheme: light dark; }
table { border-collapse: collapse; margin: 1rem 0; } th, td { padding: .25rem .75rem; text-align: left; }
th { border-bottom: 1px solid; } td.number { text-align: right; }
pre { overflow-x: auto; padding: .75rem; border: 1px solid; border-radius: 4px; }
"""


def verdict(report: Mapping[str, Any]) -> str:
    """The result in one sentence."""
    compared = report["requests"] - report["unanswered"]
    if compared == 0:
        return "Nothing was compared."
    if report["differing"] == 0:
        return f"No difference in {compared} requests: {_counts(report)}."
    return f"{report['differing']} of {compared} requests differ: {_counts(report)}."


def _counts(report: Mapping[str, Any]) -> str:
    counted = [
        f"{report['same']} the same",
        f"{report['late']} the same some seconds later",
        f"{report['moving']} about servers that change all the time",
        f"{report['unanswered']} that Nova did not answer",
        f"{report['unsettled']} that had no time to settle",
    ]
    return ", ".join(each for number, each in enumerate(counted) if number == 0 or not each.startswith("0 "))


def facts(report: Mapping[str, Any]) -> Iterator[str]:
    """Further facts, a sentence each."""
    said = report["complete"] + report["not_complete"]
    routes = ", ".join(f"{name} in {count}" for name, count in report["routes"].items())
    if said:
        yield f"Fleetlight said of {report['complete']} of {said} answers that they are complete (from {routes})."
    for each in report["were_late"]:
        yield f"Late: {each['class']}, in {each['requests']} requests, by {each['seconds']} s at most."
    for each in report["explained"]:
        yield f"Explained: {each['class']}, in {each['requests']} requests: {each['meaning']}."


def rows(report: Mapping[str, Any]) -> Sequence[Sequence[str]]:
    """One row for each class of differences."""
    return [
        [
            each["class"],
            str(each["requests"]),
            str(each["differences"]),
            each["nova"],
            each["fleetlight"],
            each["curl"][0],
        ]
        for each in report["differences"]
    ]


def latency_rows(report: Mapping[str, Any]) -> Sequence[Sequence[str]]:
    return [[str(each[name]) for name in _LATENCIES] for each in report["latencies"]]


def example_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """An example of a class of differences, with the value of each API."""
    about = [part for part in (found["what"], found["server"] and f"of server {found['server']}") if part]
    complete = found["said_complete"] and f"Fleetlight-Complete: {found['said_complete']}"
    yield f"{found['class']}: {' '.join([*about, f'({complete})' if complete else '']).strip()}".rstrip(": ")
    yield f"    Nova:       {found['nova']}"
    yield f"    Fleetlight: {found['fleetlight']}"


def as_html(report: Mapping[str, Any]) -> str:
    """The report as one page, which loads nothing and runs no scripts."""
    parts = [
        f"<h1>{escape(verdict(report))}</h1>",
        f"<p>{escape(report['begun_at'])} to {escape(report['ended_at'])}: Nova at {escape(report['nova'])}, "
        f"Fleetlight at {escape(report['fleetlight'])}, microversions up to {escape(report['microversion'])}.</p>",
        *(f"<p>{escape(fact)}</p>" for fact in facts(report)),
        *_section("Differences", report["differences"]),
        "<h2>Latencies</h2>",
        _table(LATENCY_COLUMNS, latency_rows(report)),
        *_section("Late", report["were_late"]),
        *_section("Explained", report["explained"]),
    ]
    head = f'<meta charset="utf-8"><title>Fleetlight beside Nova</title><style>{_STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n' + "\n".join(parts) + "\n</body></html>\n"


def _section(title: str, found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if found:
        yield f"<h2>{title}</h2>"
    for each in found:
        count = f"{each['class']}: {each['requests']} requests, {each['differences']} differences"
        text = "\n".join((*example_lines(each), *each["curl"]))
        yield f"<h3>{escape(count)}</h3><pre>{escape(text)}</pre>"


def _table(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f'<td class="number">{escape(value)}</td>' for value in line) + "</tr>" for line in lines
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

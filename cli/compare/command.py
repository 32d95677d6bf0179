"""`fleetlight compare`: the command."""

import json
import random
import re
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Annotated, Any

import typer

from fleetlight.cells.errors import UpstreamError
from fleetlight.cells.upstream.http import PassingError
from fleetlight.cli.compare.access_log import STANDARD_INPUT, LogQuestions
from fleetlight.cli.compare.catalogue import SAMPLED, Catalogue
from fleetlight.cli.compare.comparison import Comparison
from fleetlight.cli.compare.questions import DETAILED, Question
from fleetlight.cli.compare.report import (
    COLUMNS,
    LATENCY_COLUMNS,
    as_html,
    example_lines,
    facts,
    latency_rows,
    rows,
    verdict,
)
from fleetlight.cli.compare.sites import Login, Site, open_site
from fleetlight.cli.compare.tally import Tally
from fleetlight.cli.errors import CommandError, ConfigurationError
from fleetlight.cli.main import go_on_after_interrupt
from fleetlight.cli.options import Output, OutputOption, examples
from fleetlight.cli.output import print_json, print_notice, print_paragraph, print_result, print_rows, print_table
from fleetlight.cli.work_progress import shown_progress
from fleetlight.indexer.writing.throttle import Throttle

app = typer.Typer()

_REQUESTS = 500
_OK = 200
_DURATION = re.compile(r"(?P<number>\d{1,6})(?P<unit>[smhd])")
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
# One version that shows flavors by id, and the newest one, which shows all members.
_SAMPLED_AT = ("2.46", None)


class NotReachableError(CommandError):
    """One of the APIs cannot be reached, or stopped answering; the comparison has no result."""

    exit_code = 3


def duration_s(text: str) -> float:
    """Parse a whole number with its unit to seconds. Raises BadParameter."""
    found = _DURATION.fullmatch(text)
    if found is None or int(found["number"]) == 0:
        raise typer.BadParameter(f"'{text}' is no duration such as 90s, 30m, 12h or 7d")
    return float(int(found["number"]) * _UNITS_S[found["unit"]])


def report_file(text: str) -> Path:
    """Check that a report can be written to this path at the end. Raises BadParameter."""
    path = Path(text)
    if path.suffix not in (".html", ".json"):
        raise typer.BadParameter(f"'{text}' ends neither with .html nor with .json")
    if not path.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {path.parent}")
    return path


@app.command(
    "compare",
    epilog=examples(
        "fleetlight compare --nova east --fleetlight https://fleetlight.example.org:8774/v2.1",
        "fleetlight compare --nova east --fleetlight east-fleetlight --requests 5000 --report compared.html",
        "fleetlight compare --nova east --fleetlight east-fleetlight --log /var/log/nova/nova-api.log --for 2h",
        "tail -F access.log | fleetlight compare --nova east --fleetlight east-fleetlight --log - --for 7d",
    ),
)
def compare(
    *,
    nova: Annotated[
        str,
        typer.Option(
            metavar="CLOUD|URL",
            help="Nova's compute API: a cloud of clouds.yaml, or an address with /v2.1.",
            show_default=False,
        ),
    ],
    fleetlight: Annotated[
        str, typer.Option(metavar="CLOUD|URL", help="Fleetlight's compute API, in the same form.", show_default=False)
    ],
    token: Annotated[
        str | None,
        typer.Option(
            envvar="OS_TOKEN", metavar="TOKEN", help="The token for an API given as URL; best set in the environment."
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A file with that token, which another program renews."),
    ] = None,
    clouds_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="clouds.yaml; by default the one that OpenStack's clients would find."),
    ] = None,
    ca_certs: Annotated[
        Path | None, typer.Option(metavar="FILE", help="PEM file with the certificates of the APIs' authorities.")
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Repeat the requests in this access log of Nova, HAProxy, nginx or Apache; - reads standard input.",
        ),
    ] = None,
    requests: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help=f"End after so many requests; {_REQUESTS} by default, unless --for or --log is given.",
            show_default=False,
        ),
    ] = None,
    for_s: Annotated[
        float | None,
        typer.Option("--for", parser=duration_s, metavar="DURATION", help="End after this time: 90s, 30m, 12h, 7d."),
    ] = None,
    rate: Annotated[
        float, typer.Option(min=0.01, max=1000, metavar="N", help="Send Nova at most this many requests a second.")
    ] = 2.0,
    settle: Annotated[
        float,
        typer.Option(
            min=0.1,
            max=86_400,
            metavar="SECONDS",
            help="How long a difference must last to be reported; more than search.staleness_limit_s.",
        ),
    ] = 10.0,
    report: Annotated[
        Path | None,
        typer.Option(
            parser=report_file, metavar="FILE", help="Also write the report to this file, as a page (.html) or JSON."
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Send the same requests to Nova and Fleetlight, and report differences with requests that reproduce them.

    The command only reads, and serves no callers. It asks for lists of every form at every microversion and for single
    servers, or repeats the requests of an access log. It asks again where answers differ, so that a changing server is
    no difference. Intended differences are counted by name. Ctrl-C ends the run with a report of what was seen. Exit
    code 0 if nothing differs, 1 if something does, 3 if one of the APIs cannot be reached.
    """
    login = Login(token, token_file, clouds_file, ca_certs)
    if requests is None and for_s is None and log is None:
        requests = _REQUESTS
    tally, begun_at = Tally(), _now()
    with ExitStack() as opened:
        try:
            theirs, ours = (
                opened.enter_context(closing(open_site(name, place, login)))
                for name, place in (("nova", nova), ("fleetlight", fleetlight))
            )
            newest = min(theirs.newest(), ours.newest())
            asked = _questions(log, theirs, newest)
        except PassingError as error:
            raise NotReachableError(str(error)) from error
        except UpstreamError as error:
            raise ConfigurationError(str(error)) from error
        throttle = Throttle(rate, Event())
        is_stopped, refused = False, None
        show = opened.enter_context(shown_progress("requests"))("compared", requests)
        comparison = Comparison(theirs, ours, tally, settle, lambda: throttle.spend(1), show)
        try:
            comparison.run(iter(asked), most=requests, for_s=for_s)
        except KeyboardInterrupt:
            go_on_after_interrupt()
            is_stopped = True
        except UpstreamError as error:
            refused = ConfigurationError(str(error))
    found = {
        **tally.document(theirs.url, ours.url),
        "microversion": f"2.{newest}",
        "begun_at": begun_at,
        "ended_at": _now(),
        "skipped_lines": asked.skipped if isinstance(asked, LogQuestions) else 0,
    }
    _write(found, output, report)
    if is_stopped:
        print_notice("stopped; the report is of what was seen until then")
    if refused is not None:
        raise refused
    if comparison.away is not None:
        raise NotReachableError(f"{comparison.away} does not answer any more")
    if 0 < tally.asked == tally.unanswered:
        raise NotReachableError("nova answers nothing that can be compared")
    if tally.asked == 0:
        print_notice("there was nothing to compare")
    if tally.differing_requests:
        raise typer.Exit(1)


def _questions(log: Path | None, nova: Site, newest: int) -> "LogQuestions | Iterator[Question | None]":
    """The source of requests: the log, or the catalogue. Raises ConfigurationError if the log does not exist."""
    if log is None:
        rows_seen = [row for version in _SAMPLED_AT for row in _sample(nova, version or f"2.{newest}")]
        return Catalogue(rows_seen, newest, random.Random()).questions()  # noqa: S311  # no secret
    if log != STANDARD_INPUT and not log.is_file():
        raise ConfigurationError(f"--log: there is no file {log}")
    return LogQuestions(log, f"2.{newest}")


def _sample(nova: Site, version: str) -> list[Any]:
    """Servers of all projects, or only of our project if Nova does not let us list others."""
    limit = ("limit", str(SAMPLED))
    for parameters in ((("all_tenants", "1"), limit), (limit,)):
        answer = nova.ask(Question(DETAILED, parameters, version))
        if answer.status == _OK:
            return list(answer.servers)
    return []


def _write(found: dict[str, Any], output: Output, report: Path | None) -> None:
    if report is not None:
        text = as_html(found) if report.suffix == ".html" else json.dumps(found, indent=2, ensure_ascii=False) + "\n"
        report.write_text(text, encoding="utf-8")
    match output:
        case Output.JSON:
            print_json(found)
        case Output.CSV:
            print_rows(output, found, COLUMNS, rows(found))
        case Output.TABLE:
            _print(found)


def _print(found: dict[str, Any]) -> None:
    print_paragraph(verdict(found))
    for fact in facts(found):
        print_paragraph(fact)
    for each in found["differences"]:
        print_result("")
        for line in example_lines(each):
            print_paragraph(line)
        # These lines are not wrapped, so that they can be pasted.
        for line in each["curl"]:
            print_result(line)
    if found["latencies"]:
        print_result("")
        print_table(LATENCY_COLUMNS, latency_rows(found), right_aligned=LATENCY_COLUMNS[1:])


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")

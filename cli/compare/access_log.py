"""Parses requests from access logs of Nova, uWSGI, HAProxy, nginx and Apache; pure.

All but uWSGI put the request line between quotation marks. HAProxy truncates it if it is too long.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import parse_qsl, unquote, urlsplit

from fleetlight.cli.compare.questions import Question

_QUOTED = re.compile(r'"GET (?P<target>\S+?)(?: HTTP/[\d.]+)?"')
_UWSGI = re.compile(r"\] GET (?P<target>\S+) => generated ")
# Only Nova's own request log has the microversion.
_VERSION = re.compile(r"\bmicroversion: (?P<version>2\.\d+)\b")
_LIST_OR_SERVER = re.compile(
    r"/v2(?:\.\d+)?(?:/[0-9a-f-]{32,36})?(?P<path>/servers(?:/detail|/[0-9a-fA-F-]{32,36})?)/?$"
)
_ESCAPED = re.compile(r"\\x([0-9A-Fa-f]{2})")


def question_in(line: str) -> Question | None:
    """Parse a log line that shows a request for one server or a list of servers; None for any other line.

    The version is empty if the line does not show it.
    """
    found = _QUOTED.search(line) or _UWSGI.search(line)
    if found is None:
        return None
    # nginx and Apache write bytes that are not printable as \xNN.
    target = _ESCAPED.sub(r"%\1", found["target"])
    try:
        address = urlsplit(target)
    except ValueError:
        return None
    path = _LIST_OR_SERVER.search(unquote(address.path))
    if path is None:
        return None
    version = _VERSION.search(line)
    parameters = parse_qsl(address.query, keep_blank_values=True, errors="surrogateescape")
    return Question(path["path"], tuple(parameters), version["version"] if version else "")


def questions_in(line: str, newest: str) -> Sequence[Question]:
    """The requests of a line; at the oldest and the newest microversion if it does not show the version."""
    found = question_in(line)
    if found is None:
        return ()
    return [found] if found.version else [replace(found, version=version) for version in ("2.1", newest)]

"""Requests out of the access logs of Nova, uWSGI, HAProxy, nginx and Apache; pure.

All of them write the line of the request between quotation marks, but uWSGI. HAProxy cuts it where it has no room.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import parse_qsl, unquote, urlsplit

from fleetlight.cli.compare.questions import Question

_QUOTED = re.compile(r'"GET (?P<target>\S+?)(?: HTTP/[\d.]+)?"')
_UWSGI = re.compile(r"\] GET (?P<target>\S+) => generated ")
# Nova's own log of requests has it.
_VERSION = re.compile(r"\bmicroversion: (?P<version>2\.\d+)\b")
_LIST_OR_SERVER = re.compile(
    r"/v2(?:\.\d+)?(?:/[0-9a-f-]{32,36})?(?P<path>/servers(?:/detail|/[0-9a-fA-F-]{32,36})?)/?$"
)
_ESCAPED = re.compile(r"\\x([0-9A-Fa-f]{2})")


def question_in(line: str) -> Question | None:
    """The request of a list of servers, or of one, that a line tells of; None for any other line.

    Its version is empty where the line does not say which one it was.
    """
    found = _QUOTED.search(line) or _UWSGI.search(line)
    if found is None:
        return None
    # What nginx and Apache take for no text stands there as bytes.
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
    """What a line asks; at the oldest and the newest microversion where it does not say which one it was."""
    found = question_in(line)
    if found is None:
        return ()
    return [found] if found.version else [replace(found, version=version) for version in ("2.1", newest)]

"""Ganeti's own client of its remote API, unmodified, in the system's Python for which it is packaged."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import pytest

from tests.support.session.requirements import GANETI_CLIENT

_PYTHON = "/usr/bin/python3"
# Makes each call that it reads, and writes what it has returned, or the error.
_PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
from ganeti.rapi import client
asked = json.loads(sys.stdin.readline())
rapi = client.GanetiRapiClient(asked["host"], port=asked["port"], username=asked["name"], password=asked["password"])
rapi._base_url += asked["base"]
for line in sys.stdin:
    method, arguments, options = json.loads(line)
    try:
        said = {"returned": getattr(rapi, method)(*arguments, **options)}
    except client.GanetiApiError as error:
        said = {"code": error.code, "message": str(error)}
    print(json.dumps(said), flush=True)
"""


@pytest.fixture(scope="session")
def ganeti_client() -> Path:
    """Folder of the client; a test that asks for it needs the client."""
    located = GANETI_CLIENT.locate()
    assert located is not None, "this test needs the package python3-ganeti-rapi"
    return Path(located)


class RapiProgram:
    """A running program that uses the client; calls block. `rapi_program` makes one."""

    def __init__(self, questions: IO[str], answers: IO[str]) -> None:
        self._questions = questions
        self._answers = answers

    def calls(self, calls: Sequence[tuple[str, Sequence[Any], dict[str, Any]]]) -> list[dict[str, Any]]:
        """What each of the calls, a method with its arguments, has `returned`, or `code` and `message` of its error."""
        return [self._ask(call) for call in calls]

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """What one call has returned."""
        said = self._ask((method, arguments, options))
        assert "returned" in said, said
        return said["returned"]

    def _ask(self, question: object) -> dict[str, Any]:
        print(json.dumps(question), file=self._questions, flush=True)
        answer: dict[str, Any] = json.loads(self._answers.readline())
        return answer


@contextmanager
def rapi_program(client: Path, url: str, name: str, password: str) -> Iterator[RapiProgram]:
    """It runs until the end of the block. url: of the API, https; a path in it comes before that of each request."""
    address = urlsplit(url)
    login = {"host": address.hostname, "port": address.port, "name": name, "password": password, "base": address.path}
    command = [_PYTHON, "-c", _PROGRAM, str(client.parents[1])]
    # It ends when nothing can be asked any more.
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        print(json.dumps(login), file=process.stdin, flush=True)
        yield RapiProgram(process.stdin, process.stdout)

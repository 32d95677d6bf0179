"""Ganeti's own client of its remote API, unmodified, in the system's Python for which it is packaged."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.session.requirements import GANETI_CLIENT

_PYTHON = "/usr/bin/python3"
# Makes the calls that it reads, and writes what each has returned, or the error.
_PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
from ganeti.rapi import client
asked = json.load(sys.stdin)
rapi = client.GanetiRapiClient(asked["host"], port=asked["port"], username=asked["name"], password=asked["password"])
rapi._base_url += asked["base"]
said = []
for method, arguments, options in asked["calls"]:
    try:
        said.append({"returned": getattr(rapi, method)(*arguments, **options)})
    except client.GanetiApiError as error:
        said.append({"code": error.code, "message": str(error)})
json.dump(said, sys.stdout)
"""


@pytest.fixture(scope="session")
def ganeti_client() -> Path:
    """Folder of the client; a test that asks for it needs the client."""
    located = GANETI_CLIENT.locate()
    assert located is not None, "this test needs the package python3-ganeti-rapi"
    return Path(located)


class RapiProgram:
    """A program that uses the client. url: of the API, https; a path in it comes before that of each request.

    Calls block.
    """

    def __init__(self, client: Path, url: str, name: str, password: str) -> None:
        address = urlsplit(url)
        self._packages = str(client.parents[1])
        self._asked = {"host": address.hostname, "port": address.port, "name": name, "password": password}
        self._asked |= {"base": address.path}

    def calls(self, calls: Sequence[tuple[str, Sequence[Any], dict[str, Any]]]) -> list[dict[str, Any]]:
        """What each of the calls, a method with its arguments, has `returned`, or `code` and `message` of its error."""
        said = subprocess.run(
            [_PYTHON, "-c", _PROGRAM, self._packages],
            input=json.dumps({**self._asked, "calls": calls}),
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )
        assert said.returncode == 0, said.stderr
        answers: list[dict[str, Any]] = json.loads(said.stdout)
        return answers

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """What one call has returned."""
        [said] = self.calls([(method, arguments, options)])
        assert "returned" in said, said
        return said["returned"]

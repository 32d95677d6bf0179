"""`fleetlight mcp`, as an assistant starts it: by the protocol's own client, over a pipe."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters

from fleetlight.cli import assistants
from fleetlight.cli.data_folder import DataFolder
from tests.unit.cli.conftest import Run


def test_assistant_starts_the_command_and_gets_what_the_fleet_has(fleet_of_two_cells: DataFolder) -> None:
    program = str(Path(sys.executable).with_name("fleetlight"))
    command = StdioServerParameters(command=program, args=["mcp", "--data-dir", str(fleet_of_two_cells.path)])

    async def scenario() -> Any:
        async with Client(command) as client:
            assert "never present" in (client.instructions or "")
            return (await client.call_tool("cells", {})).structured_content

    found = asyncio.run(scenario())
    assert [cell["name"] for cell in found["data"]["cells"]] == ["cell1", "cell2"]
    assert found["summary"].startswith("2 cells, as of ")


def test_missing_package_is_named(fleet_of_two_cells: DataFolder, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assistants, "find_spec", lambda _name: None)
    result = run("mcp", "--data-dir", str(fleet_of_two_cells.path))
    assert (result.exit_code, "pip install 'fleetlight[mcp]'" in result.stderr) == (1, True)

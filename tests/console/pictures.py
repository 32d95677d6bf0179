"""`python -m tests.console.pictures`: make the pictures of the documents again, of a fleet that is busy."""

import io
import os
import re
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from playwright.sync_api import ViewportSize, expect, sync_playwright
from rich.console import Console as Terminal
from rich.text import Text

from tests.support.fleets.console_fleet import ConsoleFleet, console_fleet
from tests.support.pages.console import Console
from tests.support.servers.browser import BrowserPage
from tests.support.session.requirements import CHROMIUM

_FOLDER = Path(__file__).resolve().parents[2] / "docs" / "pictures"
_SIZE = ViewportSize(width=1120, height=500)
_COMMANDS = (
    "fleetlight status",
    "fleetlight list instances 'web*' -o name,cell,status,be/memory",
    "fleetlight list instances --group-by cell,vm_state",
    "fleetlight capacity",
)
# So that there is something to compare, and a line in the plots.
_BUSY_MS = 45_000


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        console_fleet(Path(folder), "--rate", "1") as fleet,
        sync_playwright() as playwright,
        closing(playwright.chromium.launch(executable_path=CHROMIUM.locate(), args=["--no-sandbox"])) as browser,
    ):
        page = browser.new_page(viewport=_SIZE, color_scheme="light")
        console = Console(fleet, BrowserPage(page))
        console.log_in("admin")
        page.wait_for_timeout(_BUSY_MS)
        for name, show in _PICTURES.items():
            show(console)
            page.screenshot(path=_FOLDER / f"{name}.png")
        _record(fleet)


def _record(fleet: ConsoleFleet) -> None:
    """What a terminal of 80 columns shows of some commands."""
    terminal = Terminal(record=True, width=80, file=io.StringIO(), force_terminal=True)
    for command in _COMMANDS:
        terminal.print(Text(f"$ {command}", style="bold"))
        called = ["script", "--quiet", "--return", "--command", f"stty cols 80; {command}", "/dev/null"]
        environment = os.environ | {"FLEETLIGHT_DATA_DIR": str(fleet.api.data_dir)}
        shown = subprocess.run(called, env=environment, capture_output=True, text=True, check=False).stdout
        terminal.print(Text.from_ansi(shown.replace("\r\n", "\n")))
    picture = terminal.export_svg(title="fleetlight")
    # A picture loads nothing: it is shown with the font that is there.
    picture = re.sub(r"@font-face \{.*?\}\s*|<!--.*?-->\s*", "", picture, flags=re.DOTALL)
    (_FOLDER / "terminal.svg").write_text(picture)


def _list(console: Console) -> None:
    console.list('instances?filter=vm_state == "active" and be/memory > 1024')
    console.page.get_by_role("heading", name="Project").wait_for()


def _cells(console: Console) -> None:
    with console.fleet.without("cell2"):
        console.open("cells")
        expect(console.page.get_by_text("down", exact=True)).to_be_visible()
        console.page.wait_for_timeout(1000)


def _capacity(console: Console) -> None:
    page = console.open("capacity")
    page.get_by_role("button", name="Count").click()
    page.locator(".fits").first.wait_for()
    page.get_by_label("By zone and group").check()


def _difference(console: Console) -> None:
    moment = (datetime.now(UTC) - timedelta(seconds=20)).strftime("%Y-%m-%dT%H:%M:%SZ")
    page = console.open(f"instances?past=1&against=now&as_of={moment}&columns=name,cell,host,vm_state,task_state")
    page.locator("tbody ins").first.wait_for()


_PICTURES: dict[str, Callable[[Console], None]] = {
    "list": _list,
    "capacity": _capacity,
    "difference": _difference,
    "cells": _cells,
}

if __name__ == "__main__":
    main()

"""What people read first leads somewhere, and what the code cites is there."""

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.session.product import FOLDERS, FOR_DEVELOPERS, ROOT

DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
PACKAGES = [*FOLDERS, *FOR_DEVELOPERS]
_TARGET = re.compile(r"\]\(([^)\s]+)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_NUMBER = r"\d+(?:\.\d+)?"
_CONTRACT = re.compile(rf"contracts/([a-z-]+)(?:, (?:sections? )?({_NUMBER}(?:(?:, | and | to ){_NUMBER})*))?")
_DECISION = re.compile(r"(?:docs/decisions/|\bdecisions? |(?<=/0\d{3}), )(\d{4})")
_ARCHITECTURE = re.compile(r'docs/architecture\.md, "([^"]+)"')
_RECORD = re.compile(r"# (\d{4})\. (.+)")
_WIDTH = 120
_SCREEN_LINES = 50
_LEVELS = {"debug", "info", "warning", "error", "exception"}


def anchors(document: Path) -> set[str]:
    """The fragments that headings of a document have on GitHub."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings(document)}


def prose(document: Path) -> Iterator[tuple[int, str]]:
    """The lines, with their numbers, that are no code, no heading and no row of a table."""
    is_code = False
    for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code and not line.startswith(("#", "|", "    ")):
            yield number, line


def headings(document: Path) -> list[str]:
    return _HEADING.findall(document.read_text(encoding="utf-8"))


def sources(packages: Sequence[str]) -> Iterator[Path]:
    for package in packages:
        yield from sorted((ROOT / package).rglob("*.py"))


def cited(pattern: re.Pattern[str]) -> set[tuple[str, ...]]:
    """What the code cites by a pattern, wherever a line of it breaks."""
    texts = [path.read_text(encoding="utf-8") for path in sources(PACKAGES) if path != Path(__file__)]
    texts.append((ROOT / "scripts" / "test").read_text(encoding="utf-8"))
    return {match.groups("") for text in texts for match in pattern.finditer(re.sub(r"\s+(?:# )?", " ", text))}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_to_files_lead_to_files(document: Path) -> None:
    targets = [target for target in _TARGET.findall(document.read_text()) if "://" not in target]
    files = [target.partition("#")[0] for target in targets]
    assert [file for file in files if not (document.parent / file).exists()] == []
    assert [
        target
        for target in targets
        for file, _, fragment in [target.partition("#")]
        if fragment and fragment not in anchors(document.parent / file if file else document)
    ] == []


@pytest.mark.parametrize("document", [*DOCUMENTS, ROOT / "CHANGELOG.md"], ids=lambda path: str(path.relative_to(ROOT)))
def test_prose_wraps_at_120_columns(document: Path) -> None:
    breakable = [(number, line) for number, line in prose(document) if " " in line.strip()]
    assert [number for number, line in breakable if len(line) > _WIDTH] == []


def test_list_of_decisions_has_each_record_with_its_title_in_one_line_and_no_other() -> None:
    folder = ROOT / "docs" / "decisions"
    records = sorted(folder.glob("0*.md"))
    assert [path.name[:4] for path in records] == [f"{number:04}" for number in range(1, len(records) + 1)]
    titles = [match for path in records if (match := _RECORD.match(path.read_text(encoding="utf-8")))]
    lines = [f"[{title[1]}]({path.name}) {title[2].strip()}" for path, title in zip(records, titles, strict=True)]
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^\* (.+)$", text, re.MULTILINE) == lines


def test_decision_fits_on_a_screen() -> None:
    records = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
    lines = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in records}
    assert {name: count for name, count in lines.items() if count > _SCREEN_LINES} == {}


def test_cited_sections_of_contracts_are_there() -> None:
    citations = cited(_CONTRACT)
    assert len(citations) > 50
    missing = []
    for name, numbers in citations:
        contract = ROOT / "docs" / "contracts" / f"{name}.md"
        there = {heading.split()[0].rstrip(".") for heading in headings(contract)} if contract.exists() else set()
        missing += [f"{name}, {number}" for number in re.findall(_NUMBER, numbers) if number not in there]
        missing += [] if contract.exists() else [name]
    assert missing == []


def test_cited_decisions_are_there() -> None:
    there = {path.name[:4] for path in (ROOT / "docs" / "decisions").glob("0*.md")}
    assert {number for (number,) in cited(_DECISION)} - there == set()


def test_cited_sections_of_the_architecture_are_there() -> None:
    citations = {section for (section,) in cited(_ARCHITECTURE)}
    assert citations
    assert citations - set(headings(ROOT / "docs" / "architecture.md")) == set()


def test_architecture_names_every_folder() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    folders = {folder: [path.parent.name for path in (ROOT / folder).glob("*/__init__.py")] for folder in FOLDERS}
    assert len(folders) > 10
    assert [name for name in folders if f"| `{name}/`" not in text and f", `{name}/` |" not in text] == []
    assert [f"{name}/{part}" for name, parts in folders.items() for part in parts if f"`{part}/`" not in text] == []


@pytest.mark.parametrize("name", ["architecture.md", "explanation/read-the-code.md"])
def test_documents_about_the_code_name_files_that_are_there(name: str) -> None:
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert [path for path in re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", text) if not (ROOT / path).exists()] == []


def test_versions_that_are_tested_have_those_of_the_composition() -> None:
    text = (ROOT / "docs" / "reference" / "versions.md").read_text(encoding="utf-8")
    images = re.findall(r"image: (\w+):(\d+)\.(\d+)", (ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    assert len(images) == 3
    # PostgreSQL counts its versions by the first number alone.
    missing = [
        (name, major, minor)
        for name, major, minor in images
        if (f" {major} " if name == "postgres" else f" {major}.{minor} ") not in text
    ]
    assert missing == []


def test_every_log_event_is_in_the_reference() -> None:
    text = (ROOT / "docs" / "reference" / "log-events.md").read_text(encoding="utf-8")
    events = {
        node.args[0].value
        for path in sources(FOLDERS)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _LEVELS
        if ast.unparse(node.func.value).endswith("log")
        if node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)
    }
    assert len(events) > 50
    assert {event for event in events if f"`{event}`" not in text} == set()


def test_every_metric_is_in_the_reference() -> None:
    text = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    texts = [path.read_text("utf-8") for path in sources(FOLDERS)]
    counting = [each for each in texts if "prometheus_client" in each]
    metrics = {name for each in counting for name in re.findall(r'"(fleetlight_[a-z_]+)"', each)}
    assert len(metrics) > 20
    named = set(re.findall(r"`(fleetlight_[a-z_]+?)(?:_total|_info)?`", text))
    assert {metric.removesuffix("_info") for metric in metrics} - named == set()

"""`scripts/size`: the ledger of size, and its budget."""

import subprocess
from pathlib import Path

from scripts.size_ledger import BUDGET, excesses, functions_per_100, line_figures, lowered, python_counts, read_budget
from scripts.size_ledger import rooms as rooms_of

MODULE = '''"""A module,

in three lines."""

import os
from pathlib import (
    Path,
)

# A comment.


class Thing:
    """A thing."""

    size = 1  # it is small

    def name(self) -> str:
        def inner() -> str:
            import json

            return json.dumps(os.sep)

        return inner() if Path() else ""
'''
TEXT = """# Why.
[product]
lines = 1200
functions_per_100 = 11.2

[walk.list]
modules = 55
"""


def test_lines_of_a_module_are_told_apart_by_kind() -> None:
    counts = python_counts(MODULE)
    assert counts == {"lines": 24, "code": 6, "docstrings": 5, "imports": 5, "blank": 8, "functions": 2}
    assert functions_per_100(counts) == 33.3


def test_rooms_hold_what_somebody_writes_and_git_does_not_ignore(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    folders = "[tool.hatch.build.targets.wheel.hooks.custom]\nfolders = ['query', 'manager']\n"
    texts = {
        "pyproject.toml": folders,
        ".gitignore": "made.py\n",
        "README.md": "One\n",
        "query/tree.py": "a = 1\nb = 2\n",
        "query/made.py": "a = 1\n",
        "manager/jobs.py": "a = 1\n",
        "query/data.json": "{}\n",
        "console/page.tsx": "1\n\n2\n",
        "console/package-lock.json": "{}\n",
        "tests/test_tree.py": "a = 1\n",
        "docs/index.md": "One\n\nTwo\n",
        "elsewhere/tree.py": "a = 1\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    figures = line_figures(rooms_of(tmp_path))
    assert {name: figure for name, figure in figures.items() if figure} == {
        "product.lines": 6,
        "index.lines": 5,
        "tests.lines": 1,
        "docs.lines": 4,
    }


def test_figure_above_its_budget_is_named_with_what_is_too_many() -> None:
    budget = {"product.lines": 1200.0, "walk.list.modules": 55.0, "product.functions_per_100": 11.2}
    assert excesses({"product.lines": 1200, "walk.list.modules": 54, "product.functions_per_100": 11.2}, budget) == []
    assert excesses({"product.lines": 1234, "walk.list.modules": 56, "product.functions_per_100": 11.4}, budget) == [
        "product.lines is 1,234, the budget is 1,200: 34 too many",
        "walk.list.modules is 56, the budget is 55: 1 too many",
        "product.functions_per_100 is 11.4, the budget is 11.2: 0.2 too many",
    ]


def test_figure_without_a_budget_exceeds_it() -> None:
    assert excesses({"bench.lines": 3}, {}) == ["bench.lines is 3, and has no budget"]


def test_budget_falls_to_what_is_measured_and_never_rises(tmp_path: Path) -> None:
    figures = {"product.lines": 1034.0, "product.functions_per_100": 12.0, "walk.list.modules": 40.0}
    text = lowered(TEXT, figures)
    assert text == TEXT.replace("1200", "1100").replace("55", "40")
    (tmp_path / "budget.toml").write_text(text)
    assert read_budget(tmp_path / "budget.toml") == {
        "product.lines": 1100,
        "product.functions_per_100": 11.2,
        "walk.list.modules": 40,
    }


def test_budget_has_a_figure_for_each_that_is_measured_and_no_other() -> None:
    walks = {f"walk.{walk}.{name}" for walk in ("list", "query2") for name in ("functions", "modules", "changes")}
    assert read_budget(BUDGET).keys() == line_figures(rooms_of(BUDGET.parents[1])).keys() | walks

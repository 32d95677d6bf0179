"""The ledger of size behind `scripts/size`: what is measured, and the budget that it is compared with.

Needs the standard library alone. `tests/contract/walks.py` makes the walks, which need the environment.

*Product* is what hatch packages, and the console; *index* is the product without the wing `manager/`. Counted are the
files written by hand (`_WRITTEN`), also those that git does not have yet; neither data nor lock files. Kinds of
lines are told apart in Python only: elsewhere a line is code or blank. *Functions* are what `def` makes, methods and
inner functions too; *code* is neither docstring, comment, import nor blank.
"""

import argparse
import ast
import json
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
BUDGET = _ROOT / "scripts" / "size_budget.toml"
_WRITTEN = {".py", ".ts", ".tsx", ".mjs", ".css", ".html", ".sh", ".java", ".lua", ".sql", ".md", ""}
_WING = "manager"
_OTHER_GROUPS = ("tests", "bench", "scripts", "docs")
_KINDS = ("lines", "code", "docstrings", "imports", "blank", "functions")
_WALKS = ("list", "query2")
_WALK_FIGURES = ("functions", "modules", "changes")
# A budget of lines is the next multiple of 100: then a change of a word needs no change of the budget.
_LINES_STEP = 100

# Counts of a file, or of all files of a room, by kind.
Counts = Counter[str]
# Figures by name, as in the budget: `product.lines`, `walk.list.modules`.
Figures = Mapping[str, float]


def python_counts(text: str) -> Counts:
    """The lines of a module by kind, and its functions. Within a long text a blank line is blank."""
    kinds: dict[int, str] = {}
    counts: Counts = Counter()
    for statement in _statements(ast.parse(text)):
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                counts["functions"] += 1
            case ast.Import() | ast.ImportFrom():
                kinds |= dict.fromkeys(_lines_of(statement), "imports")
            case ast.Expr(ast.Constant(str())):
                kinds |= dict.fromkeys(_lines_of(statement), "docstrings")
    for number, line in enumerate(text.splitlines(), 1):
        counts["lines"] += 1
        counts[kinds.get(number) or _kind_of(line.strip())] += 1
    return counts


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """All statements below `node`. Expressions are not looked into: they hold none, and are most of a tree."""
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        below = getattr(node, part, ())
        for child in below if isinstance(below, list) else ():
            if isinstance(child, ast.stmt):
                yield child
            yield from _statements(child)


def _lines_of(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _kind_of(line: str) -> str:
    if not line:
        return "blank"
    return "docstrings" if line.startswith("#") else "code"


def _other_counts(text: str) -> Counts:
    lines = text.splitlines()
    blank = sum(not line.strip() for line in lines)
    return Counter(lines=len(lines), code=len(lines) - blank, blank=blank)


def rooms(root: Path) -> dict[str, dict[str, Counts]]:
    """The counts of each folder at the top, by group: those of the product first. Documents at the top are docs."""
    packaged = _packaged_folders(root)
    group_of = dict.fromkeys((*packaged, "console"), "product") | {name: name for name in _OTHER_GROUPS}
    found: dict[str, dict[str, Counts]] = {group: defaultdict(Counter) for group in ("product", *_OTHER_GROUPS)}
    for path in _files(root):
        room = path.parts[0] if len(path.parts) > 1 else "docs" if path.suffix == ".md" else ""
        if room in group_of and path.suffix in _WRITTEN:
            text = (root / path).read_text(encoding="utf-8")
            found[group_of[room]][room] += python_counts(text) if path.suffix == ".py" else _other_counts(text)
    return found


def _packaged_folders(root: Path) -> Sequence[str]:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    folders: Sequence[str] = project["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["folders"]
    return folders


def _files(root: Path) -> Iterator[Path]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    for name in sorted(set(listed.split("\0")) - {""}):
        if (root / name).is_file():
            yield Path(name)


def functions_per_100(counts: Counts) -> float:
    """How many functions there are for 100 lines of code."""
    return round(100 * counts["functions"] / max(counts["code"], 1), 1)


def _python_of_product(product: Mapping[str, Counts]) -> Counts:
    return sum((counts for room, counts in product.items() if room != "console"), Counter())


def line_figures(found: Mapping[str, Mapping[str, Counts]]) -> dict[str, float]:
    """What the budget knows of the rooms. found: as `rooms` gives it."""
    lines = {f"{group}.lines": float(sum(counts["lines"] for counts in of.values())) for group, of in found.items()}
    index = float(sum(counts["lines"] for room, counts in found["product"].items() if room != _WING))
    per_100 = functions_per_100(_python_of_product(found["product"]))
    return lines | {"index.lines": index, "product.functions_per_100": per_100}


def measured_walks() -> dict[str, float]:
    """The figures of the walks, made in a process of its own; none without the environment."""
    python = _ROOT / ".venv" / "bin" / "python"
    if not python.exists():
        return {}
    command = [str(python), "-m", "tests.contract.walks"]
    walks = json.loads(subprocess.run(command, cwd=_ROOT, check=True, capture_output=True, text=True).stdout)
    return walk_figures(walks)


def walk_figures(walks: Mapping[str, Mapping[str, int]]) -> dict[str, float]:
    """What the budget knows of walks, each by its name. walks: how many functions, modules and changes each has."""
    return {f"walk.{walk}.{name}": walks[walk][name] for walk in _WALKS for name in _WALK_FIGURES}


def read_budget(path: Path) -> dict[str, float]:
    """The figures that must not be exceeded, by name."""
    return dict(_flat(tomllib.loads(path.read_text(encoding="utf-8"))))


def _flat(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, float]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, int | float):
            yield f"{prefix}{name}", value


def _rounded(name: str, figure: float) -> float:
    return -(-figure // _LINES_STEP) * _LINES_STEP if name.endswith(".lines") else figure


def excesses(figures: Figures, budget: Figures) -> list[str]:
    """A sentence for each figure that exceeds its budget, or has none."""
    return [
        f"{name} is {figure:,g}, the budget is {budget[name]:,g}: {figure - budget[name]:,.4g} too many"
        if name in budget
        else f"{name} is {figure:,g}, and has no budget"
        for name, figure in figures.items()
        if figure > budget.get(name, -1)
    ]


def lowered(text: str, figures: Figures) -> str:
    """The text of a budget in which each figure is what was measured, rounded, unless that is more than it was."""
    table, lines = "", []
    for line in text.splitlines():
        if line.startswith("["):
            table = line.strip("[]") + "."
        name, is_figure, was = line.partition(" = ")
        figure = figures.get(table + name)
        if is_figure and figure is not None and _rounded(name_of := table + name, figure) < float(was):
            line = f"{name} = {_rounded(name_of, figure):g}"  # noqa: PLW2901
        lines.append(line)
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Print the ledger, or compare or lower the budget. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="scripts/size")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--check", action="store_true")
    choice.add_argument("--budget", action="store_true")
    chosen = parser.parse_args(arguments)
    found = rooms(_ROOT)
    figures = line_figures(found) | measured_walks()
    if chosen.budget:
        BUDGET.write_text(lowered(BUDGET.read_text(encoding="utf-8"), figures), encoding="utf-8")
    budget = read_budget(BUDGET)
    above = excesses(figures, budget)
    if not (chosen.check or chosen.budget):
        print(*_table(found), "", *_summary(figures, budget), sep="\n")
        return 0
    for sentence in above:
        print(sentence)
    if above:
        print(
            "Make it smaller, or raise the figure in scripts/size_budget.toml in the commit that needs it, "
            "whose body says why (lines: to the next multiple of 100)."
        )
    return 1 if above else 0


def _table(found: Mapping[str, Mapping[str, Counts]]) -> Iterator[str]:
    yield f"{'':<16}" + "".join(f"{kind:>12}" for kind in _KINDS) + f"{'per 100':>9}"
    for group, of in found.items():
        for room, counts in sorted(of.items()):
            yield _row(room, counts)
        if len(of) > 1:
            yield _row(f"= {group}", sum(of.values(), Counter()))


def _row(title: str, counts: Counts) -> str:
    per_100 = f"{functions_per_100(counts):9.1f}" if counts["functions"] else ""
    return f"{title:<16}" + "".join(f"{counts[kind]:12,}" for kind in _KINDS) + per_100


def _summary(figures: Figures, budget: Figures) -> Iterator[str]:
    """Thirteen lines at most: a row for each figure of the rooms, and one for each walk."""
    yield f"{'':<28}{'now':>18}{'budget':>18}"
    for name in (*(f"{group}.lines" for group in ("product", "index", *_OTHER_GROUPS)), "product.functions_per_100"):
        yield f"{name:<28}{figures[name]:>18,g}{budget.get(name, 0):>18,g}"
    for walk in _WALKS:
        names = [f"walk.{walk}.{figure}" for figure in _WALK_FIGURES]
        now, most = ("/".join(f"{of.get(name, 0):g}" for name in names) for of in (figures, budget))
        yield f"{f'walk.{walk}':<28}{now:>18}{most:>18}"
    yield "Walks: functions/modules/changes of module of a list, and of a Query2 query, over the SQLite index."
    yield f"{len(excesses(figures, budget))} figures exceed the budget (scripts/size --check)."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

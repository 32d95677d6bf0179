"""docs/reference/settings.md, made of the models: `python -m tests.support.pages.settings_page`."""

import inspect
import re
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from fleetlight.cli.settings import Settings

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "settings.md"
_HEAD = """\
# Settings

Every key that `fleetlight` reads, with the variable that goes before the file. Any key can be given as `<key>_file`,
and any variable as `<VARIABLE>_FILE`, too: the path of a file that holds the value, the way for secrets. Lists are JSON
in the environment: `FLEETLIGHT_INDEX_URLS='["http://one:9200"]'`. What is wrong is refused at the start, by its name.

For a fleet in a data folder (`fleetlight up`, `--data-dir`) `fleet.database_url`, `index.path`, `identity.file` and
`nodes.certificates_dir` are in that folder, `search.enabled` is true and `api.auth` is `tokens`, unless they are set.

This page is made of the program: `python -m tests.support.pages.settings_page`, and a test compares it.
"""
_ENTRY = re.compile(r"(?P<names>[a-z_]+(?:, [a-z_]+)*): (?P<text>.*)")


def page() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *(line for name in Settings.model_fields for line in _section(name))])


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """What the docstring of `model` says about each key; keys that stand together have the same text."""
    found: dict[str, str] = {}
    last: list[str] = []
    for line in inspect.cleandoc(model.__doc__ or "").splitlines():
        if (entry := _ENTRY.fullmatch(line)) and not set(entry["names"].split(", ")) - model.model_fields.keys():
            last = entry["names"].split(", ")
            found |= dict.fromkeys(last, entry["text"])
        elif line.startswith("    ") and last:
            found |= dict.fromkeys(last, f"{found[last[0]]} {line.strip()}")
        else:
            last = []
    return found


def models() -> Iterator[tuple[str, type[BaseModel]]]:
    """The sections and what reads them."""
    for name, field in Settings.model_fields.items():
        assert isinstance(field.annotation, type)
        assert issubclass(field.annotation, BaseModel)
        yield name, field.annotation


def _section(name: str) -> Iterator[str]:
    model = dict(models())[name]
    about = inspect.cleandoc(model.__doc__ or "").split("\n\n", maxsplit=1)[0].replace("\n", " ")
    yield f"## `[{name}]`"
    yield ""
    yield about
    yield ""
    yield "| key | variable | unless given | |"
    yield "| --- | --- | --- | --- |"
    text = meanings(model)
    schemas = model.model_json_schema()["properties"]
    for key, field in model.model_fields.items():
        meaning = "; ".join(filter(None, (text[key].removesuffix("."), _limits(schemas[key]))))
        yield f"| `{key}` | `FLEETLIGHT_{name}_{key}` | {_default(field)} | {meaning} |".replace(
            f"_{name}_{key}", f"_{name}_{key}".upper()
        )
    yield ""


def _limits(schema: dict[str, Any]) -> str:
    """What the type of a key allows, but for its kind."""
    [choice, *_] = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
    if "enum" in choice:
        return "one of " + ", ".join(f"`{value}`" for value in choice["enum"])
    least, more, most = (choice.get(name) for name in ("minimum", "exclusiveMinimum", "maximum"))
    parts = [
        None if least is None else f"at least {least:g}",
        None if more is None else f"more than {more:g}",
        None if most is None else f"at most {most:g}",
    ]
    return ", ".join(filter(None, parts))


def _default(field: FieldInfo) -> str:
    value = field.default
    match value:
        case None:
            return "-"
        case bool():
            return f"`{str(value).lower()}`"
        case SecretStr():
            return f'`"{value.get_secret_value()}"`'
        case timedelta():
            return f'`"{value.days}d"`'
        case tuple():
            return "`[" + ", ".join(f'"{each}"' for each in value) + "]`"
        case int() | float():
            return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"
        case _:
            return f'`"{value}"`'


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.exit(0)

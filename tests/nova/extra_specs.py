"""Prints what Nova says of extra specs: a line of JSON for each name, with the values that it accepts and those not."""

import json
import re
import sys
from itertools import product

from nova import exception
from nova.api.validation.extra_specs import validators

NUMBERS = ("-1", "0", "1", "15", "16", " 5 ", "+2", "1_0", "1.5", "x", "")
WORDS = ("yes", "OFF", "maybe", "required", "custom", "none", "plain")
LISTS = ("0-3,^2", "^1", "0,", "2MB", "large", "5GiB", "A_1,B", "A,,B", "gpu:1", "gpu:1 , b:2", "gpu", "<in> aes")
NAMESPACES = ("hw", "hw_rng", "hw_video", "quota", "os", "pci_passthrough")
SOME = ("required", "forbidden", "1", "-1", "x", "")
PARTS = {
    "{num}": ("0", "12", "one"),
    "{group}": ("", "1", "_OF-x", "x" * 64, "x" * 65),
    "{filter}": ("", ":features", ":topology:cores", ":"),
    "{key}": ("a", "a:b"),
    "{resource}": ("GOLD", "gold"),
    "{trait}": ("GOLD",),
}


def names_of(pattern: str) -> list[str]:
    parts = [part for part in PARTS if part in pattern]
    names = []
    for chosen in product(*(PARTS[part] for part in parts)):
        name = pattern
        for part, text in zip(parts, chosen, strict=True):
            name = name.replace(part, text)
        names.append(name)
    return names


def accepts(name: str, value: str) -> bool:
    try:
        validators.validate(name, value)
    except exception.ValidationError:
        return False
    return True


def main() -> None:
    # Nova matches a name with one pattern after the other, more than are kept compiled otherwise.
    re._MAXCACHE = 10_000  # type: ignore[attr-defined]
    known = list(validators.VALIDATORS)
    traits = [pattern for pattern in known if pattern.startswith("trait") and "CUSTOM" not in pattern]
    patterns = [pattern for pattern in known if pattern not in traits] + traits[::40]
    names = {name for pattern in patterns for name in names_of(pattern)}
    strangers = {name.split(":")[0] + ":colour" for name in names if ":" in name} | {"ours:colour", "colour"}
    enums = {str(word) for spec in validators.VALIDATORS.values() for word in spec.value.get("enum", ())}
    values = sorted({*NUMBERS, *WORDS, *LISTS, *enums})
    for name in sorted(names | strangers):
        asked = values if ":" not in name or name.split(":")[0] in NAMESPACES else SOME
        accepted = [value for value in asked if accepts(name, value)]
        said = {"name": name, "accepted": accepted, "refused": sorted({*asked} - {*accepted})}
        sys.stdout.write(json.dumps(said) + "\n")


main()

"""Commands and groups of commands with a help that shows no type beside a flag, which takes no value.

A command refuses an option of other days, or of other programs, by what to type instead.
"""

from itertools import takewhile
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

_TYPE_INSTEAD = {
    "--json": "--output json",
    "--size": "--memory 4G --disk 20G --vcpus 2",
    "--memory-gib": "--memory 64G",
    "--disk-gib": "--disk 1024G",
    "--template": "--disk-template plain",
    "--reserve-memory-gib": "--reserve-memory 8G",
    "--reserve-disk-gib": "--reserve-disk 50G",
}


class _WithPlainFlags:
    def get_params(self, ctx: Any) -> Any:
        parameters = super().get_params(ctx)  # type: ignore[misc]  # of the command that this is mixed into
        for parameter in parameters:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
        return parameters


class PlainCommand(_WithPlainFlags, TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known = {name for parameter in self.params for name in parameter.opts}
        for typed in takewhile(lambda argument: argument != "--", args):
            name = typed.partition("=")[0]
            if name in _TYPE_INSTEAD.keys() - known:
                raise typer.BadParameter(f"there is no {name}: type {_TYPE_INSTEAD[name]}", ctx)
        return super().parse_args(ctx, args)


class PlainGroup(_WithPlainFlags, TyperGroup):
    pass

"""Commands and groups of commands with a help that shows no type beside a flag, which takes no value."""

from typing import Any

from typer.core import TyperCommand, TyperGroup


class _WithPlainFlags:
    def get_params(self, ctx: Any) -> Any:
        parameters = super().get_params(ctx)  # type: ignore[misc]  # of the command that this is mixed into
        for parameter in parameters:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
        return parameters


class PlainCommand(_WithPlainFlags, TyperCommand):
    pass


class PlainGroup(_WithPlainFlags, TyperGroup):
    pass

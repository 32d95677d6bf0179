"""Commands and groups of commands whose help shows no type for flags, since these take no value.

A command that gets an option of earlier versions or of other programs says what to type instead.
"""

import inspect
from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from inspect import Parameter
from itertools import chain, takewhile
from pathlib import Path
from typing import Any, get_args

import typer
from typer.core import TyperCommand, TyperGroup

from fleetlight.cli.given import FromSettings
from fleetlight.cli.options import ConfigOption, DataDirOption

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


def with_what_it_declares(command: Callable[..., None]) -> Callable[..., None]:
    """Wrap a command for typer: parameters marked with FromSettings are opened at each call."""
    declared = inspect.signature(command, eval_str=True)
    given = {
        name: mark
        for name, parameter in declared.parameters.items()
        for mark in get_args(parameter.annotation)
        if isinstance(mark, FromSettings)
    }
    if not given:
        return command
    first = next(iter(given))

    @wraps(command)
    def run(*, config: Path | None, data_dir: Path | None, **typed: object) -> None:
        # Read only here: help and completion need no settings, and an agent's host has none.
        from fleetlight.cli.settings import load_settings  # noqa: PLC0415

        settings = load_settings(config, data_dir)
        with ExitStack() as stack:
            opened = {name: stack.enter_context(mark.open(settings, data_dir)) for name, mark in given.items()}
            command(**typed, **opened)

    # The signature for typer: --config and --data-dir stand where the first marked parameter is declared.
    options = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in (("config", ConfigOption), ("data_dir", DataDirOption))
    ]
    shown = {
        name: [each.replace(kind=Parameter.KEYWORD_ONLY)] if name not in given else options if name == first else []
        for name, each in declared.parameters.items()
    }
    run.__signature__ = declared.replace(parameters=list(chain(*shown.values())))  # type: ignore[attr-defined]
    return run

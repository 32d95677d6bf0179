"""What the commands of `fleetlight identity` have in common: their arguments, and the file that they change."""

from contextlib import nullcontext
from typing import Annotated

import typer

from fleetlight.api.caller import ROLES
from fleetlight.api.identity.tokens.directory import Directory
from fleetlight.api.identity.tokens.directory_file import DirectoryFile
from fleetlight.cli.errors import ConfigurationError
from fleetlight.cli.given import FromSettings
from fleetlight.cli.settings import Settings

UserArgument = Annotated[str, typer.Argument(metavar="USER", help="The user, by name or id.", show_default=False)]
ProjectArgument = Annotated[
    str, typer.Argument(metavar="PROJECT", help="The project, by name or id.", show_default=False)
]
RequiredProject = Annotated[str, typer.Option("--project", metavar="PROJECT", help="The project, by name or id.")]
RequiredRole = Annotated[str, typer.Option("--role", metavar="ROLE", help=f"One of {', '.join(ROLES)}.")]
NewName = Annotated[str, typer.Argument(metavar="NAME", help="What to call it.", show_default=False)]
ProjectOption = Annotated[
    str | None, typer.Option("--project", metavar="PROJECT", help="The project, by name or id.", show_default=False)
]
UserOption = Annotated[str | None, typer.Option("--user", metavar="USER", help="Only of this user.")]


def directory_file(settings: Settings) -> DirectoryFile:
    """Raises ConfigurationError unless a file of users is configured."""
    if settings.identity.file is None:
        raise ConfigurationError(
            "identity.file (FLEETLIGHT_IDENTITY_FILE) is needed: it says where users and projects are kept"
        )
    return DirectoryFile(settings.identity.file)


UsersFile = Annotated[DirectoryFile, FromSettings(lambda settings, _: nullcontext(directory_file(settings)))]


def checked_name(name: str) -> str:
    """Raises ConfigurationError for a name that is blank or has characters that cannot be printed."""
    if not name.strip() or not name.isprintable():
        raise ConfigurationError(f"{name!r} is no name: it needs a character that can be seen")
    return name


def project_name(directory: Directory, project_id: str | None) -> str | None:
    project = directory.projects.get(project_id or "")
    return None if project is None else project.name

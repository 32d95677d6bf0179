"""`fleetlight identity project`"""

from typing import Annotated

import msgspec
import typer

from fleetlight.api.identity.tokens.directory import Project, new_id
from fleetlight.cli.identity.options import NewName, ProjectArgument, UsersFile, checked_name
from fleetlight.cli.options import Output, OutputOption, examples
from fleetlight.cli.output import print_result, print_rows

app = typer.Typer(
    help="The projects that servers belong to.",
    no_args_is_help=True,
    epilog=examples("fleetlight identity project list", "fleetlight identity project add demo"),
)


@app.command(
    "add",
    epilog=examples(
        "fleetlight identity project add demo", "fleetlight identity project add demo --id 5ff7b3b4e4c94b1fa7d3"
    ),
)
def add_project(
    name: NewName,
    *,
    id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The id of the project; a new uuid unless given."),
    ] = None,
    description: Annotated[str, typer.Option(metavar="TEXT", help="What it is for.")] = "",
    file: UsersFile,
) -> None:
    """Add a project."""
    project = Project(id=checked_name(id) if id else new_id(), name=checked_name(name), description=description)
    file.change(lambda directory: directory.with_project(project), create=True)
    print_result(f"{name}: added, id {project.id}")


@app.command("list", epilog=examples("fleetlight identity project list"))
def list_projects(file: UsersFile, output: OutputOption = Output.TABLE) -> None:
    """Show every project."""
    directory = file.read()
    projects = sorted(directory.projects.values(), key=lambda project: project.name)
    document = [msgspec.to_builtins(project) for project in projects]
    rows = [(each.name, each.id, each.description or "-") for each in projects]
    print_rows(output, document, ("NAME", "ID", "DESCRIPTION"), rows)


@app.command("remove", epilog=examples("fleetlight identity project remove demo"))
def remove_project(name: ProjectArgument, file: UsersFile) -> None:
    """Remove a project with all roles in it. Its servers stay."""
    file.change(lambda directory: directory.without_project(directory.named_project(name)))
    print_result(f"{name}: removed")

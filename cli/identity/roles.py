"""`fleetlight identity role`"""

import typer

from fleetlight.cli.identity.options import (
    RequiredProject,
    RequiredRole,
    UserArgument,
    UserOption,
    UsersFile,
    project_name,
)
from fleetlight.cli.options import Output, OutputOption, examples
from fleetlight.cli.output import print_result, print_rows

app = typer.Typer(
    help="The roles of users in projects.", no_args_is_help=True, epilog=examples("fleetlight identity role list")
)


@app.command("add", epilog=examples("fleetlight identity role add ada --project demo --role member"))
def add_role(user: UserArgument, *, project: RequiredProject, role: RequiredRole, file: UsersFile) -> None:
    """Give a user a role in a project. Each role implies those below it: admin, manager, member, reader."""
    file.change(
        lambda directory: directory.with_role(directory.named_user(user), directory.named_project(project), role)
    )
    print_result(f"{user}: {role} in {project}")


@app.command("list", epilog=examples("fleetlight identity role list --user ada"))
def list_roles(*, user: UserOption = None, file: UsersFile, output: OutputOption = Output.TABLE) -> None:
    """Show which user has which role in which project, as it was given: without the roles that it implies."""
    directory = file.read()
    users = directory.users.values() if user is None else [directory.named_user(user)]
    given = [
        {"user": each.name, "project": project_name(directory, project_id), "role": role}
        for each in sorted(users, key=lambda each: each.name)
        for project_id, roles in each.roles.items()
        for role in roles
    ]
    print_rows(output, given, ("USER", "PROJECT", "ROLE"), [[str(value) for value in each.values()] for each in given])


@app.command("remove", epilog=examples("fleetlight identity role remove ada --project demo --role member"))
def remove_role(user: UserArgument, *, project: RequiredProject, role: RequiredRole, file: UsersFile) -> None:
    """Take away a role that was given with `role add`; tokens that are in use lose it too."""
    file.change(
        lambda directory: directory.without_role(directory.named_user(user), directory.named_project(project), role)
    )
    print_result(f"{user}: no longer {role} in {project}")

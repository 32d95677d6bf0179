"""`fleetlight identity user`"""

from typing import Annotated

import msgspec
import typer

from fleetlight.api.identity.passwords import hash_password
from fleetlight.api.identity.tokens.directory import Directory, User, new_id
from fleetlight.api.identity.tokens.directory_file import DirectoryFile
from fleetlight.cli.clouds import renew_password
from fleetlight.cli.data_folder import DataFolder
from fleetlight.cli.identity.options import (
    NewName,
    ProjectOption,
    UserArgument,
    UsersFile,
    checked_name,
    project_name,
)
from fleetlight.cli.options import Output, OutputOption, examples
from fleetlight.cli.output import print_notice, print_result, print_rows
from fleetlight.cli.passwords import asked_password
from fleetlight.resources.clock import system_clock

app = typer.Typer(
    help="Manage the users who may log in.",
    no_args_is_help=True,
    epilog=examples("fleetlight identity user list", "fleetlight identity user add ada --project demo"),
)


@app.command(
    "add",
    epilog=examples(
        "fleetlight identity user add ada --project demo --role member",
        "fleetlight identity user add ada < /run/secrets/ada-password",
    ),
)
def add_user(
    name: NewName,
    *,
    project: ProjectOption = None,
    role: Annotated[str, typer.Option(metavar="ROLE", help="The user's role in that project.")] = "member",
    file: UsersFile,
) -> None:
    """Add a user. The command prompts for the password, or reads it from the first line of the standard input.

    --project sets the user's default project.
    """
    user = User(id=new_id(), name=checked_name(name), password_hash=hash_password(asked_password()))

    def change(directory: Directory) -> Directory:
        if project is None:
            return directory.with_new_user(user)
        place = directory.named_project(project)
        added = msgspec.structs.replace(user, default_project_id=place.id)
        return directory.with_new_user(added).with_role(added, place, role)

    file.change(change, create=True)
    print_result(f"{name}: added, id {user.id}")


@app.command("list", epilog=examples("fleetlight identity user list"))
def list_users(file: UsersFile, output: OutputOption = Output.TABLE) -> None:
    """List every user, without passwords."""
    directory = file.read()
    users = [
        {
            "name": user.name,
            "id": user.id,
            "enabled": user.enabled,
            "default_project": project_name(directory, user.default_project_id),
        }
        for user in sorted(directory.users.values(), key=lambda user: user.name)
    ]
    rows = [
        (str(each["name"]), str(each["id"]), "yes" if each["enabled"] else "no", str(each["default_project"] or "-"))
        for each in users
    ]
    print_rows(output, users, ("NAME", "ID", "ENABLED", "DEFAULT PROJECT"), rows)


@app.command("remove", epilog=examples("fleetlight identity user remove ada"))
def remove_user(name: UserArgument, file: UsersFile) -> None:
    """Remove a user with all credentials; the user's tokens become invalid at once."""
    file.change(lambda directory: directory.without_user(directory.named_user(name)))
    print_result(f"{name}: removed")


@app.command("set-password", epilog=examples("fleetlight identity user set-password ada"))
def set_password(name: UserArgument, file: UsersFile) -> None:
    """Set a user's password, from a prompt or the standard input; the user's tokens become invalid at once."""
    user = file.read().named_user(name)  # fails before the user types a password in vain
    password = asked_password()
    _replace_user(file, user.id, password_hash=hash_password(password), valid_from=system_clock())
    print_result(f"{name}: has a new password")
    folder = DataFolder(file.path.parent)
    is_renewed = renew_password(folder, user.name, password) if file.path == folder.identity_file else None
    if is_renewed:
        print_result(f"{folder.clouds_file}: has it too")
    elif is_renewed is not None:
        print_notice(f"{folder.clouds_file} still has the old password of {user.name}: put the new one there")


@app.command("disable", epilog=examples("fleetlight identity user disable ada"))
def disable_user(name: UserArgument, file: UsersFile) -> None:
    """Refuse a user's logins; the user's tokens become invalid at once."""
    _replace_user(file, name, enabled=False)
    print_result(f"{name}: disabled")


@app.command("enable", epilog=examples("fleetlight identity user enable ada"))
def enable_user(name: UserArgument, file: UsersFile) -> None:
    """Accept the logins of a disabled user again."""
    _replace_user(file, name, enabled=True)
    print_result(f"{name}: enabled")


def _replace_user(file: DirectoryFile, name: str, **values: object) -> None:
    file.change(lambda directory: directory.with_user(msgspec.structs.replace(directory.named_user(name), **values)))

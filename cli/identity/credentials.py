"""`fleetlight identity credential`"""

import secrets
from typing import Annotated, Any

import typer

from fleetlight.api.caller import ROLES
from fleetlight.api.http.errors import DirectoryError, UnknownInDirectoryError
from fleetlight.api.identity.passwords import hash_password
from fleetlight.api.identity.tokens.directory import Credential, Directory, new_id, require_roles
from fleetlight.cli.identity.options import NewName, UserArgument, UserOption, UsersFile, project_name
from fleetlight.cli.options import Output, OutputOption, examples
from fleetlight.cli.output import iso_time, print_result, print_rows

app = typer.Typer(
    help="Logins of programs: application credentials.",
    no_args_is_help=True,
    epilog=examples("fleetlight identity credential list"),
)

_SECRET_BYTES = 48


@app.command("add", epilog=examples("fleetlight identity credential add ada backup --project demo"))
def add_credential(
    user: UserArgument,
    name: NewName,
    *,
    project: Annotated[str, typer.Option(metavar="PROJECT", help="What it is for, by name or id.")],
    role: Annotated[list[str] | None, typer.Option(metavar="ROLE", help="Only this role; can be repeated.")] = None,
    file: UsersFile,
) -> None:
    """Add an application credential: a login for a program, for one project. Prints its secret, once."""
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    hashed, identifier = hash_password(secret), new_id()

    def change(directory: Directory) -> Directory:
        owner, place = directory.named_user(user), directory.named_project(project)
        require_roles(*(role or ()))
        own = directory.roles_of(owner, place)
        wanted = own if role is None else frozenset(role)
        if not wanted or not wanted <= own:
            raise DirectoryError(f"user {owner.name} does not have all of these roles in project {place.name}")
        roles = tuple(each for each in ROLES if each in wanted)
        return directory.with_credential(
            Credential(id=identifier, name=name, secret_hash=hashed, user_id=owner.id, project_id=place.id, roles=roles)
        )

    file.change(change)
    print_result(f"id: {identifier}\nsecret: {secret}")


@app.command("list", epilog=examples("fleetlight identity credential list --user ada"))
def list_credentials(*, user: UserOption = None, file: UsersFile, output: OutputOption = Output.TABLE) -> None:
    """Show application credentials, never a secret."""
    directory = file.read()
    owner = None if user is None else directory.named_user(user).id
    shown: list[dict[str, Any]] = [
        {
            "id": each.id,
            "name": each.name,
            "user": directory.users[each.user_id].name,
            "project": project_name(directory, each.project_id),
            "roles": list(each.roles),
            "expires_at": iso_time(each.expires_at),
        }
        for each in directory.credentials.values()
        if owner in {None, each.user_id}
    ]
    columns = ("id", "name", "user", "project")
    rows = [
        [*(str(each[key]) for key in columns), ",".join(each["roles"]), each["expires_at"] or "-"] for each in shown
    ]
    print_rows(output, shown, ("ID", "NAME", "USER", "PROJECT", "ROLES", "EXPIRES AT"), rows)


@app.command("remove", epilog=examples("fleetlight identity credential remove 0c31b5e4a7e94a0f8a2f"))
def remove_credential(
    id: Annotated[str, typer.Argument(metavar="ID", help="The id of the credential.", show_default=False)],
    file: UsersFile,
) -> None:
    """Remove an application credential; tokens that were issued for it are void at once."""

    def change(directory: Directory) -> Directory:
        credential = directory.credentials.get(id)
        if credential is None:
            raise UnknownInDirectoryError(f"there is no application credential {id}")
        return directory.without_credential(credential)

    file.change(change)
    print_result(f"{id}: removed")

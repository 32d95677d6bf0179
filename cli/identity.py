"""`fleetlight identity`: users, projects, roles and credentials of the strategy `tokens`.

They are in one file, which running APIs read again when it changes: what is done here counts with the next request.
"""

import secrets
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import typer

from api.errors import DirectoryError
from api.identity.caller import ROLES
from api.identity.passwords import hash_password
from api.identity.tokens.directory import Credential, Directory, Project, User, new_id
from api.identity.tokens.directory_file import DirectoryFile
from api.identity.tokens.login import Logins
from api.identity.tokens.token import sign
from cells.clock import system_clock
from cli.errors import CommandError, ConfigurationError
from cli.options import ConfigOption, DataDirOption, JsonOption, examples
from cli.output import print_json, print_result, print_table
from cli.passwords import asked_password
from cli.settings import Settings, load_settings

app = typer.Typer(help="Users, projects and roles, with api.auth tokens.", no_args_is_help=True)
user_app = typer.Typer(help="Who may log in.", no_args_is_help=True)
project_app = typer.Typer(help="What servers belong to.", no_args_is_help=True)
role_app = typer.Typer(help="Who may do what in which project.", no_args_is_help=True)
credential_app = typer.Typer(help="Logins of programs: application credentials.", no_args_is_help=True)
app.add_typer(user_app, name="user")
app.add_typer(project_app, name="project")
app.add_typer(role_app, name="role")
app.add_typer(credential_app, name="credential")

UserArgument = Annotated[str, typer.Argument(metavar="USER", help="The user, by name or id.", show_default=False)]
ProjectArgument = Annotated[
    str, typer.Argument(metavar="PROJECT", help="The project, by name or id.", show_default=False)
]
RoleArgument = Annotated[str, typer.Argument(metavar="ROLE", help=f"One of {', '.join(ROLES)}.", show_default=False)]
NewName = Annotated[str, typer.Argument(metavar="NAME", help="What to call it.", show_default=False)]
ProjectOption = Annotated[
    str | None, typer.Option("--project", metavar="PROJECT", help="The project, by name or id.", show_default=False)
]
UserOption = Annotated[str | None, typer.Option("--user", metavar="USER", help="Only of this user.")]

_SECRET_BYTES = 48


@user_app.command(
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
    role: Annotated[str, typer.Option(metavar="ROLE", help="The role in that project.")] = "member",
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Add a user. The password is asked for, or is the first line of the standard input.

    With --project, that is the user's default project.
    """
    file = _file(load_settings(config, data_dir))
    user = User(id=new_id(), name=_checked_name(name), password_hash=hash_password(asked_password()))

    def change(directory: Directory) -> Directory:
        if project is None:
            return directory.with_new_user(user)
        place = directory.named_project(project)
        added = msgspec.structs.replace(user, default_project_id=place.id)
        return directory.with_new_user(added).with_role(added, place, role)

    file.change(change, create=True)
    print_result(f"{name}: added, id {user.id}")


@user_app.command("list", epilog=examples("fleetlight identity user list"))
def list_users(config: ConfigOption = None, data_dir: DataDirOption = None, json: JsonOption = False) -> None:
    """Show every user, never a password."""
    directory = _file(load_settings(config, data_dir)).read()
    users = [
        {
            "name": user.name,
            "id": user.id,
            "enabled": user.enabled,
            "default_project": _project_name(directory, user.default_project_id),
        }
        for user in sorted(directory.users.values(), key=lambda user: user.name)
    ]
    if json:
        print_json(users)
        return
    rows = [
        (str(each["name"]), str(each["id"]), "yes" if each["enabled"] else "no", str(each["default_project"] or "-"))
        for each in users
    ]
    print_table(("NAME", "ID", "ENABLED", "DEFAULT PROJECT"), rows)


@user_app.command("remove", epilog=examples("fleetlight identity user remove ada"))
def remove_user(name: UserArgument, config: ConfigOption = None, data_dir: DataDirOption = None) -> None:
    """Remove a user with all credentials; tokens of the user are void at once."""
    _file(load_settings(config, data_dir)).change(lambda directory: directory.without_user(directory.named_user(name)))
    print_result(f"{name}: removed")


@user_app.command("set-password", epilog=examples("fleetlight identity user set-password ada"))
def set_password(name: UserArgument, config: ConfigOption = None, data_dir: DataDirOption = None) -> None:
    """Give a user a new password, asked for or from the standard input; tokens of the user are void at once."""
    file = _file(load_settings(config, data_dir))
    file.read().named_user(name)  # before somebody types a password for nothing
    hashed, now = hash_password(asked_password()), system_clock()
    _replace_user(file, name, password_hash=hashed, valid_from=now)
    print_result(f"{name}: has a new password")


@user_app.command("disable", epilog=examples("fleetlight identity user disable ada"))
def disable_user(name: UserArgument, config: ConfigOption = None, data_dir: DataDirOption = None) -> None:
    """Let a user in no more; tokens of the user are void at once."""
    _replace_user(_file(load_settings(config, data_dir)), name, enabled=False)
    print_result(f"{name}: disabled")


@user_app.command("enable", epilog=examples("fleetlight identity user enable ada"))
def enable_user(name: UserArgument, config: ConfigOption = None, data_dir: DataDirOption = None) -> None:
    """Let a disabled user in again."""
    _replace_user(_file(load_settings(config, data_dir)), name, enabled=True)
    print_result(f"{name}: enabled")


@project_app.command(
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
        typer.Option(metavar="ID", help="The id that servers of the project have; made up unless given."),
    ] = None,
    description: Annotated[str, typer.Option(metavar="TEXT", help="What it is for.")] = "",
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Add a project."""
    project = Project(id=_checked_name(id) if id else new_id(), name=_checked_name(name), description=description)
    file = _file(load_settings(config, data_dir))
    file.change(lambda directory: directory.with_project(project), create=True)
    print_result(f"{name}: added, id {project.id}")


@project_app.command("list", epilog=examples("fleetlight identity project list"))
def list_projects(config: ConfigOption = None, data_dir: DataDirOption = None, json: JsonOption = False) -> None:
    """Show every project."""
    directory = _file(load_settings(config, data_dir)).read()
    projects = sorted(directory.projects.values(), key=lambda project: project.name)
    if json:
        print_json([msgspec.to_builtins(project) for project in projects])
        return
    print_table(("NAME", "ID", "DESCRIPTION"), [(each.name, each.id, each.description) for each in projects])


@project_app.command("remove", epilog=examples("fleetlight identity project remove demo"))
def remove_project(name: ProjectArgument, config: ConfigOption = None, data_dir: DataDirOption = None) -> None:
    """Remove a project with all roles in it. Servers stay: they are not what a project is made of."""
    _file(load_settings(config, data_dir)).change(
        lambda directory: directory.without_project(directory.named_project(name))
    )
    print_result(f"{name}: removed")


@role_app.command("add", epilog=examples("fleetlight identity role add ada demo member"))
def add_role(
    user: UserArgument,
    project: ProjectArgument,
    role: RoleArgument,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Give a user a role in a project. Each role implies those below it: admin, manager, member, reader."""
    _file(load_settings(config, data_dir)).change(
        lambda directory: directory.with_role(directory.named_user(user), directory.named_project(project), role)
    )
    print_result(f"{user}: {role} in {project}")


@role_app.command("list", epilog=examples("fleetlight identity role list --user ada"))
def list_roles(
    user: UserOption = None, config: ConfigOption = None, data_dir: DataDirOption = None, json: JsonOption = False
) -> None:
    """Show who has which role where, as it was given: without the roles that it implies."""
    directory = _file(load_settings(config, data_dir)).read()
    users = directory.users.values() if user is None else [directory.named_user(user)]
    given = [
        {"user": each.name, "project": _project_name(directory, project_id), "role": role}
        for each in sorted(users, key=lambda each: each.name)
        for project_id, roles in each.roles.items()
        for role in roles
    ]
    if json:
        print_json(given)
        return
    print_table(("USER", "PROJECT", "ROLE"), [[str(value) for value in each.values()] for each in given])


@role_app.command("remove", epilog=examples("fleetlight identity role remove ada demo member"))
def remove_role(
    user: UserArgument,
    project: ProjectArgument,
    role: RoleArgument,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Take a role away that was given with `role add`; it counts for tokens that are in use too."""
    _file(load_settings(config, data_dir)).change(
        lambda directory: directory.without_role(directory.named_user(user), directory.named_project(project), role)
    )
    print_result(f"{user}: no longer {role} in {project}")


@credential_app.command("add", epilog=examples("fleetlight identity credential add ada backup --project demo"))
def add_credential(
    user: UserArgument,
    name: NewName,
    *,
    project: Annotated[str, typer.Option(metavar="PROJECT", help="What it is for, by name or id.")],
    role: Annotated[list[str] | None, typer.Option(metavar="ROLE", help="Only this role; can be repeated.")] = None,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Add an application credential: a login for a program, for one project. Prints its secret, once."""
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    hashed, identifier = hash_password(secret), new_id()

    def change(directory: Directory) -> Directory:
        owner, place = directory.named_user(user), directory.named_project(project)
        own = directory.roles_of(owner, place)
        wanted = own if role is None else frozenset(role)
        if not wanted or not wanted <= own:
            raise DirectoryError(f"user {owner.name} has not all of these roles in project {place.name}")
        roles = tuple(each for each in ROLES if each in wanted)
        return directory.with_credential(
            Credential(id=identifier, name=name, secret_hash=hashed, user_id=owner.id, project_id=place.id, roles=roles)
        )

    _file(load_settings(config, data_dir)).change(change)
    print_result(f"id: {identifier}\nsecret: {secret}")


@credential_app.command("list", epilog=examples("fleetlight identity credential list --user ada"))
def list_credentials(
    user: UserOption = None, config: ConfigOption = None, data_dir: DataDirOption = None, json: JsonOption = False
) -> None:
    """Show application credentials, never a secret."""
    directory = _file(load_settings(config, data_dir)).read()
    owner = None if user is None else directory.named_user(user).id
    shown: list[dict[str, Any]] = [
        {
            "id": each.id,
            "name": each.name,
            "user": directory.users[each.user_id].name,
            "project": _project_name(directory, each.project_id),
            "roles": list(each.roles),
            "expires_at": None if each.expires_at is None else _time(each.expires_at),
        }
        for each in directory.credentials.values()
        if owner in {None, each.user_id}
    ]
    if json:
        print_json(shown)
        return
    columns = ("id", "name", "user", "project")
    rows = [
        [*(str(each[key]) for key in columns), ",".join(each["roles"]), each["expires_at"] or "-"] for each in shown
    ]
    print_table(("ID", "NAME", "USER", "PROJECT", "ROLES", "EXPIRES AT"), rows)


@credential_app.command("remove", epilog=examples("fleetlight identity credential remove 0c31b5e4a7e94a0f8a2f"))
def remove_credential(
    id: Annotated[str, typer.Argument(metavar="ID", help="Its id.", show_default=False)],
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Remove an application credential; tokens that were got with it are void at once."""

    def change(directory: Directory) -> Directory:
        credential = directory.credentials.get(id)
        if credential is None:
            raise DirectoryError(f"there is no application credential {id}")
        return directory.without_credential(credential)

    _file(load_settings(config, data_dir)).change(change)
    print_result(f"{id}: removed")


@app.command(
    epilog=examples(
        "fleetlight identity token admin",
        'curl -H "X-Auth-Token: $(fleetlight identity token admin)" http://127.0.0.1:8774/v2.1/servers',
    )
)
def token(
    user: UserArgument, project: ProjectOption = None, config: ConfigOption = None, data_dir: DataDirOption = None
) -> None:
    """Print a token of a user, for the default project unless given: whoever may read the file needs no password."""
    settings = load_settings(config, data_dir)
    directory = _file(settings).read()
    owner = directory.named_user(user)
    place = directory.named_project(project or owner.default_project_id or "without a default, name one with --project")
    if not directory.roles_of(owner, place):
        raise CommandError(f"user {owner.name} is disabled, or has no role in project {place.name}")
    logins = Logins(lifetime_s=settings.identity.token_lifetime_s)
    print_result(sign(logins.token_for(owner, place), directory.signing_key))


def _file(settings: Settings) -> DirectoryFile:
    if settings.identity.file is None:
        raise ConfigurationError(
            "identity.file (FLEETLIGHT_IDENTITY_FILE) is needed: it says where users and projects are kept"
        )
    return DirectoryFile(settings.identity.file)


def _replace_user(file: DirectoryFile, name: str, **values: object) -> None:
    file.change(lambda directory: directory.with_user(msgspec.structs.replace(directory.named_user(name), **values)))


def _checked_name(name: str) -> str:
    if not name.strip() or not name.isprintable():
        raise ConfigurationError(f"{name!r} is no name: it needs a character that can be seen")
    return name


def _project_name(directory: Directory, project_id: str | None) -> str | None:
    project = directory.projects.get(project_id or "")
    return None if project is None else project.name


def _time(microseconds: int) -> str:
    return datetime.fromtimestamp(microseconds / 1_000_000, UTC).isoformat(timespec="seconds")

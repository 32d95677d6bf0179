"""`fleetlight identity`: users, projects, roles and credentials of the strategy `tokens`.

They are in one file, which running APIs read again when it changes: what is done here counts with the next request.
"""

import typer

from fleetlight.api.identity.tokens.login import Logins
from fleetlight.api.identity.tokens.token import sign
from fleetlight.cli.errors import CommandError, ConfigurationError
from fleetlight.cli.fleet import LoadedSettings
from fleetlight.cli.identity import credentials, projects, roles, users
from fleetlight.cli.identity.options import ProjectOption, UserArgument, directory_file
from fleetlight.cli.options import examples
from fleetlight.cli.output import print_result

app = typer.Typer(
    no_args_is_help=True,
    epilog=examples("fleetlight identity user list", "fleetlight identity role add ada --project demo --role member"),
)
app.add_typer(users.app, name="user")
app.add_typer(projects.app, name="project")
app.add_typer(roles.app, name="role")
app.add_typer(credentials.app, name="credential")


@app.command(
    epilog=examples(
        "fleetlight identity token admin",
        'curl -H "X-Auth-Token: $(fleetlight identity token admin)" http://127.0.0.1:8774/v2.1/servers',
    )
)
def token(user: UserArgument, *, project: ProjectOption = None, settings: LoadedSettings) -> None:
    """Print a token of a user, for the default project unless given. Reading the file takes no password."""
    directory = directory_file(settings).read()
    owner = directory.named_user(user)
    wanted = project or owner.default_project_id
    if wanted is None:
        raise ConfigurationError(f"user {owner.name} has no default project: name one with --project")
    place = directory.named_project(wanted)
    if not directory.roles_of(owner, place):
        raise CommandError(f"user {owner.name} is disabled, or has no role in project {place.name}")
    logins = Logins(lifetime_s=settings.identity.token_lifetime_s)
    print_result(sign(logins.token_for(owner, place), directory.signing_key))

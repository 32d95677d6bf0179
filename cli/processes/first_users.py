"""Creates the first users of `fleetlight up`, and the link for the first login of a browser."""

from collections.abc import Mapping, Sequence

from fleetlight.api.identity.passwords import hash_password
from fleetlight.api.identity.tokens.directory import Directory, Project, User, new_id
from fleetlight.api.identity.tokens.directory_file import DirectoryFile
from fleetlight.api.identity.tokens.login import Logins
from fleetlight.api.identity.tokens.token import sign
from fleetlight.cli.clouds import ADMIN, MEMBER, PROJECT
from fleetlight.cli.data_folder import DataFolder
from fleetlight.cli.passwords import new_password

_ROLES = {ADMIN: "admin", MEMBER: "member"}
LINK_LIFETIME_S = 600


def set_up_users(folder: DataFolder, projects: Sequence[str]) -> Mapping[str, str]:
    """Create the users on the first start. Returns their passwords by name, or nothing if there are users already.

    projects: ids of further projects to create.
    """
    if folder.identity_file.exists():
        return {}
    passwords = {name: new_password() for name in _ROLES}
    hashes = {name: hash_password(password) for name, password in passwords.items()}

    def change(directory: Directory) -> Directory:
        for name in dict.fromkeys((PROJECT, *projects)):
            directory = directory.with_project(Project(id=name, name=name))
        for name, role in _ROLES.items():
            user = User(id=new_id(), name=name, password_hash=hashes[name], default_project_id=PROJECT)
            directory = directory.with_new_user(user).with_role(user, directory.projects[PROJECT], role)
        return directory

    DirectoryFile(folder.identity_file).change(change, create=True)
    return passwords


def login_link(folder: DataFolder) -> str | None:
    """A token that logs one browser in as administrator, once and within LINK_LIFETIME_S.

    None if an operator has removed or disabled that user.
    """
    directory = DirectoryFile(folder.identity_file).read()
    admin = directory.user(ADMIN)
    if admin is None or not admin.enabled:
        return None
    project = directory.projects.get(admin.default_project_id or "")
    link = Logins(lifetime_s=LINK_LIFETIME_S).token_for(admin, project, is_link=True)
    return sign(link, directory.signing_key)

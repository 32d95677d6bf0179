"""clouds.yaml: where OpenStack's clients have their logins, so that nobody has to write them down a second time."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cells.errors import UpstreamError
from cells.kinds.nova_api.credentials import Credentials, Fixed, KeystoneLogin

_PLACES = (
    Path("clouds.yaml"),
    Path("~/.config/openstack/clouds.yaml"),
    Path("/etc/openstack/clouds.yaml"),
)
_TYPES = ("password", "v3password", "v3applicationcredential", "token", "v3token")


@dataclass(frozen=True, slots=True)
class Cloud:
    """The login of one cloud. ca_certs: PEM file of the authority behind its certificates."""

    credentials: Credentials
    ca_certs: Path | None


def find_clouds_file() -> Path:
    """Where openstacksdk looks for it too; raises UpstreamError."""
    named = os.environ.get("OS_CLIENT_CONFIG_FILE")
    places = [Path(named)] if named else [place.expanduser() for place in _PLACES]
    for place in places:
        if place.is_file():
            return place.absolute()
    raise UpstreamError(f"there is no clouds.yaml: looked for {', '.join(map(str, places))}")


def read_cloud(file: Path, name: str, *, timeout_s: float) -> Cloud:
    """The cloud called `name`; raises UpstreamError, which never shows what a secret is."""
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        # What the parser says may show a line with a password.
        reason = error.strerror if isinstance(error, OSError) else "it is not YAML"
        raise UpstreamError(f"cannot read {file}: {reason}") from None
    clouds = found.get("clouds") if isinstance(found, dict) else None
    cloud = clouds.get(name) if isinstance(clouds, dict) else None
    if not isinstance(cloud, dict) or not isinstance(cloud.get("auth"), dict):
        known = ", ".join(map(str, clouds)) if isinstance(clouds, dict) else "none"
        raise UpstreamError(f"{file}: there is no login for a cloud '{name}'; known: {known}")
    ca_certs = Path(str(cloud["cacert"])).expanduser() if cloud.get("cacert") else None
    where = f"{file}: cloud '{name}'"
    return Cloud(_credentials(where, cloud, cloud["auth"], timeout_s, ca_certs), ca_certs)


def _credentials(
    where: str, cloud: Mapping[str, Any], auth: Mapping[str, Any], timeout_s: float, ca_certs: Path | None
) -> Credentials:
    is_credential = "application_credential_secret" in auth
    kind = cloud.get("auth_type") or ("v3applicationcredential" if is_credential else "password")
    if kind not in _TYPES:
        raise UpstreamError(f"{where}: auth_type '{kind}' is not known here; known: {', '.join(_TYPES)}")
    if kind in ("token", "v3token"):
        return Fixed.token(_required(where, auth, "token"))
    request = _application_credential(where, auth) if kind == "v3applicationcredential" else _password(where, auth)
    return KeystoneLogin(_required(where, auth, "auth_url"), request, timeout_s=timeout_s, ca_certs=ca_certs)


def _password(where: str, auth: Mapping[str, Any]) -> dict[str, Any]:
    user = _named(auth, "user_id", "username", "user") | {"password": _required(where, auth, "password")}
    project = _named(auth, "project_id", "project_name", "project")
    if "id" not in user and "name" not in user:
        raise UpstreamError(f"{where}: auth.username is missing")
    if not project:
        raise UpstreamError(f"{where}: auth.project_name is missing")
    return {"identity": {"methods": ["password"], "password": {"user": user}}, "scope": {"project": project}}


def _application_credential(where: str, auth: Mapping[str, Any]) -> dict[str, Any]:
    credential: dict[str, Any] = {"secret": _required(where, auth, "application_credential_secret")}
    if auth.get("application_credential_id"):
        credential["id"] = str(auth["application_credential_id"])
    else:
        credential |= {
            "name": _required(where, auth, "application_credential_name"),
            "user": _named(auth, "user_id", "username", "user"),
        }
    return {"identity": {"methods": ["application_credential"], "application_credential": credential}}


def _named(auth: Mapping[str, Any], id_key: str, name_key: str, what: str) -> dict[str, Any]:
    """A user or a project, by its id, or by its name in a domain."""
    if auth.get(id_key):
        return {"id": str(auth[id_key])}
    if not auth.get(name_key):
        return {}
    for key, member in ((f"{what}_domain_id", "id"), ("domain_id", "id"), (f"{what}_domain_name", "name")):
        if auth.get(key):
            return {"name": str(auth[name_key]), "domain": {member: str(auth[key])}}
    return {"name": str(auth[name_key]), "domain": {"name": str(auth.get("domain_name") or "Default")}}


def _required(where: str, auth: Mapping[str, Any], key: str) -> str:
    value = auth.get(key)
    if value in (None, ""):
        raise UpstreamError(f"{where}: auth.{key} is missing")
    return str(value)

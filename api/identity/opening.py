"""From the configuration to a strategy of identity."""

from fleetlight.api.http.errors import DirectoryUnavailableError, IdentityConfigurationError
from fleetlight.api.identity.basic import BasicIdentity
from fleetlight.api.identity.browser import BrowserIdentity
from fleetlight.api.identity.none import NoIdentity
from fleetlight.api.identity.openid.strategy import CALLBACK, OpenIdIdentity
from fleetlight.api.identity.tokens.strategy import TokenIdentity
from fleetlight.api.settings import ApiSettings, IdentitySettings, KeystoneSettings, OpenIdSettings

_NO_PROVIDER = OpenIdSettings()


def open_identity(
    api: ApiSettings,
    identity: IdentitySettings,
    keystone: KeystoneSettings,
    openid: OpenIdSettings = _NO_PROVIDER,
) -> BrowserIdentity:
    """Open the strategy that `api.auth` names, with logins at a provider if one is set. api: with `watch_key` then.

    Raises IdentityConfigurationError when a needed setting is missing, or a needed file cannot be read.
    """
    programs = _open_programs(api, identity, keystone)
    return programs if openid.issuer is None else _with_openid(programs, api, identity, openid)


def _open_programs(api: ApiSettings, identity: IdentitySettings, keystone: KeystoneSettings) -> BrowserIdentity:
    match api.auth:
        case "none":
            return NoIdentity()
        case "basic":
            if identity.htpasswd_file is None:
                raise _needed("basic", "identity.htpasswd_file")
            return _checked(BasicIdentity(identity.htpasswd_file, identity.token_lifetime_s))
        case "tokens":
            if identity.file is None:
                raise _needed("tokens", "identity.file")
            return _checked(
                TokenIdentity(
                    identity.file,
                    region=identity.region,
                    lifetime_s=identity.token_lifetime_s,
                    max_credentials=identity.max_credentials,
                )
            )
        case "keystone":
            return _open_keystone(keystone)


def _checked(strategy: BasicIdentity | TokenIdentity) -> BrowserIdentity:
    """Check at the start, and not at the first request, that the file of users can be read."""
    try:
        strategy.check()
    except DirectoryUnavailableError as error:
        raise IdentityConfigurationError(f"cannot read the users in {error.path}: {error.reason}") from error
    return strategy


def _open_keystone(settings: KeystoneSettings) -> BrowserIdentity:
    for key in ("auth_url", "username", "password"):
        if getattr(settings, key) is None:
            raise _needed("keystone", f"keystone.{key}")
    try:
        from fleetlight.api.identity.keystone import KeystoneIdentity  # noqa: PLC0415 -- it needs an extra that few install
    except ImportError as error:
        raise IdentityConfigurationError(
            "api.auth keystone needs the package keystonemiddleware: install fleetlight[keystone]"
        ) from error
    return KeystoneIdentity(settings)


def _with_openid(
    programs: BrowserIdentity, api: ApiSettings, identity: IdentitySettings, settings: OpenIdSettings
) -> BrowserIdentity:
    if isinstance(programs, NoIdentity):
        raise IdentityConfigurationError("configuration: openid.issuer needs an api.auth other than none")
    for key in ("compute_link_prefix", "watch_key"):
        if getattr(api, key) is None:
            raise _needed("with openid.issuer", f"api.{key}")
    try:
        from fleetlight.api.identity.openid.provider import OpenIdProvider  # noqa: PLC0415 -- it needs an extra that few install
    except ImportError as error:
        raise IdentityConfigurationError(
            "openid.issuer needs the package authlib: install fleetlight[openid]"
        ) from error
    assert api.watch_key is not None  # noqa: S101  # looked at above
    provider = OpenIdProvider(settings, f"{api.compute_link_prefix}{CALLBACK}")
    key, lifetime_s = api.watch_key.get_secret_value(), identity.token_lifetime_s
    return OpenIdIdentity(programs, provider, settings, key=key, lifetime_s=lifetime_s)


def _needed(strategy: str, key: str) -> IdentityConfigurationError:
    variable = "FLEETLIGHT_" + key.replace(".", "_").upper()
    return IdentityConfigurationError(f"configuration: api.auth {strategy} needs {key} ({variable})")

"""The configuration of every process: one TOML file, of which each key can also be set in the environment.

The package that reads a section defines it (its `settings.py`). A value is taken from the first of
`FLEETLIGHT_<SECTION>_<KEY>`, the file, and, for a fleet of `fleetlight up`, its data folder. Any key can also be given
as `<key>_file`, the path of a file with the value, which is the way for secrets.
"""

import json
import os
import tomllib
from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from fleetlight.api.http.host_names import ANY_HOST, HostName, ServedHosts, is_loopback
from fleetlight.api.luxi.paths import is_short_enough
from fleetlight.api.settings import ApiSettings, DeliverySettings, IdentitySettings, KeystoneSettings, OpenIdSettings
from fleetlight.bus.settings import BusSettings
from fleetlight.cells.settings import FleetSettings, NodesSettings, RelaySettings, SchedulerSettings, UpstreamSettings
from fleetlight.cli.data_folder import DEFAULT_DATA_DIR, DataFolder, sqlite_url
from fleetlight.cli.errors import ConfigurationError
from fleetlight.cli.logging import LogSettings, mask_url_passwords
from fleetlight.indexer.settings import IndexerSettings, IndexSettings
from fleetlight.listing.settings import SearchSettings
from fleetlight.resources.secret_names import is_secret_name
from fleetlight.resources.suggestions import did_you_mean

DEFAULT_CONFIG = Path("fleetlight.toml")
_PREFIX = "FLEETLIGHT_"
_FILE_SUFFIX = "_file"
# Variables that are no keys: options of commands, and those that the tests and docker-compose.yml read.
_OTHER_VARIABLES = {
    "FLEETLIGHT_CONFIG",
    "FLEETLIGHT_DATA_DIR",
    "FLEETLIGHT_CELL_DATABASE_URL",
    "FLEETLIGHT_CELL_API_DATABASE_URL",
    "FLEETLIGHT_CELL_TRANSPORT_URL",
    "FLEETLIGHT_SUBSCRIPTION_URL",
    "FLEETLIGHT_SAMPLES",
    "FLEETLIGHT_ELASTICSEARCH_PORT",
    "FLEETLIGHT_POSTGRESQL_PORT",
    "FLEETLIGHT_RABBITMQ_PORT",
}
_OTLP_PROTOCOL = "http/protobuf"
_LIST = """a list, as in ["one", "two"]"""
_TEST_PREFIX = _PREFIX + "TEST_"

Sections = dict[str, Any]


class MonitoringSettings(BaseModel):
    """Section `monitoring`: where each process serves `/metrics`, `/healthz` and `/readyz` with all that they know.

    host: the address to listen on. Callers that reach it see the names of cells, and which of them are down.
    hosts: names under which it is called, besides addresses and localhost; a request for another one is refused.
        Unset: any name, unless host is a loopback address.
    port: unset for nowhere, 0 for any free one. Processes on one machine need different ports, so it is best set in the
        environment of each.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = "127.0.0.1"
    hosts: tuple[HostName, ...] = ()
    port: int | None = Field(default=None, ge=0, le=65535)

    @property
    def served_hosts(self) -> ServedHosts:
        """The host names for which requests are accepted."""
        return ServedHosts(frozenset(self.hosts)) if self.hosts or is_loopback(self.host) else ANY_HOST


class TracesSettings(BaseModel):
    """Section `traces`: whether requests are traced, by OpenTelemetry (`fleetlight[traces]`).

    enabled: send spans by OTLP over HTTP. Where to, how many and how is said by the standard variables of OpenTelemetry
        (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_SAMPLER` and others), the same for all processes of a fleet.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = False

    @field_validator("enabled")
    @classmethod
    def _can_send(cls, enabled: bool) -> bool:
        if not enabled:
            return False
        try:
            import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
        except ImportError:
            raise ValueError("OpenTelemetry is not installed: pip install 'fleetlight[traces]'") from None
        for variable in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
            if protocol := os.environ.get(variable):
                if protocol != _OTLP_PROTOCOL:
                    raise ValueError(f"{variable} is {protocol!r}: spans are sent by {_OTLP_PROTOCOL!r} alone")
                break
        return True


class Settings(BaseSettings):
    """All sections. The constructor takes those of the file; the environment overrides them."""

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX, env_nested_delimiter="_", env_nested_max_split=1, extra="forbid", frozen=True
    )

    fleet: FleetSettings
    bus: BusSettings = Field(default_factory=BusSettings)
    relay: RelaySettings = Field(default_factory=RelaySettings)
    index: IndexSettings = Field(default_factory=IndexSettings)
    indexer: IndexerSettings = Field(default_factory=IndexerSettings)
    upstream: UpstreamSettings = Field(default_factory=UpstreamSettings)
    search: SearchSettings = Field(default_factory=SearchSettings)
    scheduler: SchedulerSettings = Field(default_factory=SchedulerSettings)
    nodes: NodesSettings = Field(default_factory=NodesSettings)
    api: ApiSettings = Field(default_factory=ApiSettings)
    identity: IdentitySettings = Field(default_factory=IdentitySettings)
    keystone: KeystoneSettings = Field(default_factory=KeystoneSettings)
    openid: OpenIdSettings = Field(default_factory=OpenIdSettings)
    delivery: DeliverySettings = Field(default_factory=DeliverySettings)
    log: LogSettings = Field(default_factory=LogSettings)
    monitoring: MonitoringSettings = Field(default_factory=MonitoringSettings)
    traces: TracesSettings = Field(default_factory=TracesSettings)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return env_settings, init_settings

    @model_validator(mode="before")
    @classmethod
    def _read_value_files(cls, sections: dict[str, Any]) -> dict[str, Any]:
        return {name: _with_value_files(name, section) for name, section in sections.items()}


def load_settings(config: Path | None, data_dir: Path | None) -> Settings:
    """Read and check the whole configuration.

    config: the TOML file; None: ./fleetlight.toml if there is one.
    data_dir: the folder of the embedded fleet to use; None: the configured fleet database, else ./fleetlight-data.
    Raises ConfigurationError, naming each wrong key, its value and what is allowed.
    """
    sections = _file_sections(config)
    if not _has_fleet_database(sections):
        folder = DataFolder(data_dir or DEFAULT_DATA_DIR)
        if not folder.exists:
            raise ConfigurationError(
                f"there is no fleet in {folder.path}: start one with `fleetlight up`, name the folder of a running one "
                "with --data-dir, or configure fleet.database_url (FLEETLIGHT_FLEET_DATABASE_URL)"
            )
        sections = _merged(_sections_of(folder), sections)
    elif data_dir is not None:
        raise ConfigurationError(
            f"--data-dir {data_dir} and fleet.database_url name two different fleets: leave one of them away"
        )
    return _validated(sections)


def load_embedded_settings(config: Path | None, folder: DataFolder) -> Settings:
    """The configuration of `fleetlight up`: the fleet in `folder`, everything else as configured.

    Raises ConfigurationError as load_settings does.
    """
    sections = _file_sections(config)
    if _has_fleet_database(sections):
        raise ConfigurationError(
            "fleet.database_url is configured, but `fleetlight up` keeps its fleet in the data folder: remove the key, "
            "or run `fleetlight api`, `fleetlight indexer` and `fleetlight relay` instead"
        )
    ours = _sections_of(folder)
    # Other parts of `fleetlight up` need the other processors.
    ours["api"] = {**ours["api"], "processes": 1}
    if is_short_enough(folder.luxi_socket):
        ours["api"] = {**ours["api"], "luxi_socket": str(folder.luxi_socket)}
    return _validated(_merged(ours, sections))


def with_api_options(
    settings: Settings, host: str | None, port: int | None, auth: str | None, processes: int | None = None
) -> Settings:
    """`settings` with the options of the command line for the section `api`. Raises ConfigurationError."""
    options = {"host": host, "port": port, "auth": auth, "processes": processes}
    given = {name: value for name, value in options.items() if value is not None}
    try:
        api = ApiSettings.model_validate(settings.api.model_dump() | given)
    except ValidationError as error:
        problem = error.errors()[0]
        raise ConfigurationError(f"--{problem['loc'][0]} {problem['input']}: {problem['msg']}") from None
    return settings.model_copy(update={"api": api})


def _sections_of(folder: DataFolder) -> Sections:
    return {
        "fleet": {"database_url": sqlite_url(folder.fleet_database)},
        "index": {"backend": "sqlite", "path": str(folder.index_database)},
        # Off by default elsewhere. Here one command runs every part, so an indexer surely runs. It rebuilds a damaged
        # index by itself, and lists use the new one without a restart.
        "search": {"enabled": True, "retry_after_s": 5.0},
        "api": {"auth": "tokens"},
        "identity": {"file": str(folder.identity_file)},
        "nodes": {"certificates_dir": str(folder.certificates)},
    }


def _merged(defaults: Sections, configured: Sections) -> Sections:
    defaults = _without_overridden(defaults, configured)
    return {name: defaults.get(name, {}) | configured.get(name, {}) for name in defaults | configured}


def _without_overridden(sections: Sections, by: Sections) -> Sections:
    """`sections` without keys that `by` gives in the other form: as `<key>` instead of `<key>_file`, or vice versa."""
    given = {(name, key) for name, section in by.items() if isinstance(section, dict) for key in section}
    return {
        name: {key: value for key, value in section.items() if (name, _other_way(name, key)) not in given}
        for name, section in sections.items()
    }


def _other_way(section: str, key: str) -> str | None:
    """The other name for the same value, with or without `_file`; None if there is none."""
    known = _keys(section)
    other = key + _FILE_SUFFIX if key in known else key.removesuffix(_FILE_SUFFIX)
    return other if (other in known) != (key in known) else None


def _has_fleet_database(file_sections: Sections) -> bool:
    configured = file_sections.get("fleet", {}).keys() | _from_environment().get("fleet", {}).keys()
    return not configured.isdisjoint({"database_url", "database_url" + _FILE_SUFFIX})


def _from_environment() -> Sections:
    """The sections in the environment. Raises ConfigurationError if a variable has no section, or is malformed."""
    problems = []
    for variable in sorted(name.upper() for name in os.environ if name.upper().startswith(_PREFIX)):
        section, _, key = variable.removeprefix(_PREFIX).lower().partition("_")
        if variable in _OTHER_VARIABLES or variable.startswith(_TEST_PREFIX) or section in Settings.model_fields:
            continue
        close = get_close_matches(section, Settings.model_fields, n=1)
        hint = f"; did you mean '{_variable(close[0], key)}'?" if close else _hint(section, Settings.model_fields)
        problems.append(f"configuration: there is no section '{section}' ({variable}){hint}")
    if problems:
        raise ConfigurationError("\n".join(problems))
    try:
        return EnvSettingsSource(Settings)()
    except SettingsError as error:
        raise ConfigurationError(_malformed_variables() or f"configuration: {error}") from error


def _malformed_variables() -> str:
    """Error messages for variables that must be JSON and are not; pydantic names only their section."""
    problems = []
    for variable, value in sorted((name.upper(), value) for name, value in os.environ.items()):
        section, _, key = variable.removeprefix(_PREFIX).lower().partition("_")
        if variable.startswith(_PREFIX) and section in Settings.model_fields and _is_list(section, key):
            try:
                json.loads(value)
            except ValueError:
                shown = mask_url_passwords(repr(value))
                problems.append(f"configuration: {section}.{key} ({variable}) is {shown}: must be {_LIST}")
    return "\n".join(problems)


def _is_list(section: str, key: str) -> bool:
    known = _keys(section)
    return key in known and get_origin(known[key].annotation) is tuple


def _keys(section: str) -> dict[str, FieldInfo]:
    model = Settings.model_fields[section].annotation
    return model.model_fields if isinstance(model, type) and issubclass(model, BaseModel) else {}


def _is_secret(section: str, key: str) -> bool:
    """Whether to hide the value of this key: by its type, or by its name if the key is unknown."""
    field = _keys(section).get(key)
    if field is None:
        return is_secret_name(key)
    return SecretStr in {field.annotation, *get_args(field.annotation)}


def _variable(section: str, key: str) -> str:
    return _PREFIX + "_".join(filter(None, (section, key))).upper()


def _file_sections(config: Path | None) -> Sections:
    if config is None:
        if not DEFAULT_CONFIG.exists():
            return {}
        config = DEFAULT_CONFIG
    try:
        content = tomllib.loads(config.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"cannot read the configuration {config}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"the configuration {config} is not UTF-8 text: {error.reason}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"the configuration {config} is not TOML: {error}") from error
    for name, section in content.items():
        if name not in Settings.model_fields:
            raise ConfigurationError(f"{config}: there is no section '{name}'{_hint(name, Settings.model_fields)}")
        if not isinstance(section, dict):
            raise ConfigurationError(f"{config}: '{name}' is a section, to be written as [{name}], not a value")
    return content


def _with_value_files(name: str, section: Any) -> Any:
    """`section` with each `<key>_file` replaced by the content of the file, without the last line break."""
    if not isinstance(section, dict):
        return section
    known = _keys(name)
    values = dict(section)
    for file_key in section.keys() - known:
        key = file_key.removesuffix(_FILE_SUFFIX)
        if key == file_key or key not in known:
            continue
        if key in section:
            raise ConfigurationError(f"{name}.{key} and {name}.{file_key} are both given: leave one of them away")
        path = Path(values.pop(file_key))
        try:
            values[key] = path.read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            raise ConfigurationError(f"{name}.{file_key}: cannot read {path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            # The cause is left out of the message, since its text would show part of the secret.
            raise ConfigurationError(f"{name}.{file_key}: {path} is not UTF-8 text") from error
        if not values[key]:
            # A writer that is cut off leaves an empty file, and an empty password would be refused as wrong, or
            # accepted.
            raise ConfigurationError(f"{name}.{file_key}: {path} is empty")
    return values


def _validated(sections: Sections) -> Settings:
    try:
        return Settings(**_without_overridden(sections, _from_environment()))
    except SettingsError as error:
        raise ConfigurationError(f"configuration: {error}") from error
    except ValidationError as error:
        raise ConfigurationError("\n".join(_problem(details) for details in error.errors())) from None


def _problem(details: ErrorDetails) -> str:
    """One line for an error: the key, its environment variable, its value, and what is allowed."""
    section, *rest = (str(part) for part in details["loc"])
    key = rest[0] if rest else ""
    name = ".".join((section, *rest))
    variable = _variable(section, key)
    if details["type"] == "extra_forbidden":
        return f"configuration: there is no key {name} ({variable}){_hint(key, _keys(section))}"
    if details["type"] == "missing":
        return f"configuration: {name} ({variable}) is needed and not set"
    if not key and isinstance(details["input"], dict):
        # Not shown: the error concerns several keys of the section, some of which may be secret.
        return f"configuration: {name}: {details['msg'].removeprefix('Value error, ')}"
    value = "(not shown)" if _is_secret(section, key) else mask_url_passwords(repr(details["input"]))
    allowed = f"must be {_LIST}" if details["type"] == "tuple_type" else details["msg"].removeprefix("Value error, ")
    return f"configuration: {name} ({variable}) is {value}: {allowed}"


def _hint(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    return did_you_mean(name, names) or f"; known: {', '.join(names)}"

"""The section `index` of the settings: where the index is, and how to reach it."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, model_validator

from fleetlight.bus.settings import CertificatesFile

_DURATION = re.compile(r"(?P<number>[0-9]{1,6})(?P<unit>[smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def _to_duration(value: object) -> timedelta:
    if isinstance(value, timedelta):
        return value
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None or not int(found["number"]):
        raise ValueError('must be a number with s, m, h or d, as in "30d"')
    return timedelta(**{_UNITS[found["unit"]]: int(found["number"])})


def _checked_address(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and bool(parts.port)
    except ValueError:  # of a port that is none
        is_whole = False
    if not is_whole:
        raise ValueError("must be a URL with its port, as in http://127.0.0.1:9200")
    return url


PositiveSeconds = Annotated[float, Field(gt=0)]


class IndexSettings(BaseModel):
    """Settings of the index backends; `path` is for `sqlite`, everything from `urls` on for the other two.

    backend: `sqlite`, one file on this machine, or what the servers are: `elasticsearch` or `opensearch`.
    path: the file of `sqlite`.
    urls: where nodes of the cluster are, each with its port; the next one is tried when one does not answer.
    shards: of each index that is made; it cannot be changed but by a rebuild.
    schemas_dir: JSON Schemas of payloads, as `fleetlight notifications schemas` writes them: fields of newer minor
        versions than this program knows can be searched for if they are described there.
    refresh_interval_s: what was written becomes searchable at most this often.
    deleted_retention: how long deleted instances stay, a number with s, m, h or d, as in "30d". Lists that ask for
        older ones are answered by the cells.
    prefix: the names of the indexes and aliases begin with it, so that several fleets can share one cluster.
    api_key: as the cluster gives it out, encoded; or username and password.
    username, password: of basic authentication, instead of api_key.
    ca_certs: PEM file of the authority behind the certificates of `https://` URLs; unset: those that the system trusts.
        A certificate is always checked, and so is the name in it.
    replicas: copies of each shard; unset lets the cluster keep one copy as soon as it has a second node.
    write_timeout_s: how long one request of the indexer may take.
    search_timeout_s: how long one request of the API may take.
    page_cache: remember the pages that are requested again and again, and check only whether they still hold; without
        it every page is read as it is the first time, in two to three times as long.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    backend: Literal["sqlite", "elasticsearch", "opensearch"] = "sqlite"
    path: Path = Path("fleetlight-index.db")
    schemas_dir: Path | None = None
    refresh_interval_s: PositiveSeconds = 0.5
    deleted_retention: Annotated[timedelta, BeforeValidator(_to_duration)] = timedelta(days=30)
    urls: Annotated[tuple[Annotated[str, AfterValidator(_checked_address)], ...], Field(min_length=1)] = (
        "http://127.0.0.1:9200",
    )
    prefix: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,99}$")] = "fleetlight"
    api_key: SecretStr | None = None
    username: str | None = None
    password: SecretStr | None = None
    ca_certs: CertificatesFile | None = None
    write_timeout_s: PositiveSeconds = 30.0
    search_timeout_s: PositiveSeconds = 5.0
    page_cache: bool = True
    shards: Annotated[int, Field(ge=1)] = 1
    replicas: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _one_way_to_authenticate(self) -> Self:
        if (self.username is None) != (self.password is None):
            raise ValueError("username and password belong together: set both or neither")
        if self.api_key is not None and self.username is not None:
            raise ValueError("set either api_key or username and password, not both")
        return self

    @model_validator(mode="after")
    def _certificates_where_there_is_tls(self) -> Self:
        plain = [url for url in self.urls if urlsplit(url).scheme == "http"]
        if self.backend != "sqlite" and self.ca_certs is not None and plain:
            # An operator who names an authority expects TLS. The client refuses this too, but as a mistake of ours.
            parts = urlsplit(plain[0])
            raise ValueError(f"ca_certs is for https:// URLs, and that of {parts.hostname}:{parts.port} is http://")
        return self

"""The sections `api`, `identity`, `keystone`, `openid` and `delivery` of the configuration."""

from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

from fleetlight.api.http.host_names import ANY_HOST, HostName, ServedHosts, host_of, is_loopback


def _without_trailing_slash(url: str) -> str:
    if not url.startswith(("http://", "https://")) or not host_of(url):
        raise ValueError("must be a URL with a host that starts with http:// or https://")
    return url.rstrip("/")


def _bare_address(url: str) -> str:
    if any(letter in url for letter in "?#@"):
        raise ValueError("must have no user, no query and no fragment")
    return _without_trailing_slash(url)


def is_secure_url(url: str) -> bool:
    """Whether traffic to `url` is encrypted by TLS, or stays on this machine."""
    host = host_of(url)
    return host is not None and (url.startswith("https://") or (url.startswith("http://") and is_loopback(host)))


def _issuer(url: str) -> str:
    # Unchanged, since the provider's tokens have the same text, with or without a final slash.
    if not is_secure_url(url) or urlsplit(url).query or urlsplit(url).fragment:
        raise ValueError("must be a URL that starts with https://, or with http:// at a loopback address")
    return url


def _network(text: str) -> str:
    try:
        return str(ip_network(text)) if "/" in text else str(ip_address(text))
    except ValueError:
        raise ValueError("must be an IP address, or a network such as 10.0.0.0/8") from None


class ApiSettings(BaseModel):
    """How the faces are served.

    host: the address to listen on; `--host` goes before it.
    port: the port to listen on, 0 for any free one; `--port` goes before it.
    processes: how many processes serve the API at that address, which `fleetlight api --processes` goes before. Unset:
        as many as there are processors that it may use, and one with `fleetlight up`.
    hosts: names that requests may be for, besides addresses, localhost and that of compute_link_prefix; the API refuses
        others. Unset, a trusted proxy decides that, if there is one; without a proxy any name is served unless host is
        a loopback address or auth is `none`.
    trusted_proxies: addresses, or networks, of proxies in front of the API, whose headers X-Forwarded-For and
        X-Forwarded-Proto are believed.
    max_limit: the largest page; also the page when a request names no limit.
    list_records_by_skipping_down_cells: whether a list may lack the servers of a cell that neither answers nor is in
        the index; otherwise the list fails with 500. From 2.69 on it has partial items for them instead.
    compute_link_prefix: base of links, instead of the address that the request was sent to.
    max_lists: pages of lists, queries and counts that one process makes at the same time; more wait.
    max_live_lists: pages that one process makes at the same time by asking cells.
    max_waiting_lists: pages that may wait, a quarter of them of one caller; more are refused with 503 at once.
    list_wait_s: longest wait of a page before it is refused.
    max_unread_mib: size of large answers that callers have not taken yet, a quarter of it of one caller; beyond it,
        further pages are refused. The same limit applies to bodies of unanswered requests; further ones get 503.
    max_watches: concurrent streams of changes, over all processes of one `fleetlight api`.
    max_watches_per_user, max_watches_per_project: concurrent streams of one user, and of all users of one project.
    max_project_metrics: number of projects, those that come first, with metrics of their own; all others count
        together; with 0 none is counted.
    header_timeout_s: time for the headers of a request to arrive, from the opening of the connection on.
    body_timeout_s: time for the body after that; a late request gets 408, and the connection ends.
    response_timeout_s: time for a client to take the next 256 KiB of an answer; then the connection ends.
    shutdown_timeout_s: time for running requests to be answered when a process stops; new and late ones get 503.
    watch_key: a secret that all processes of one API share. They seal cursors of watches, and sessions of logins at an
        OpenID provider, with it, so that another process can open them, also after a restart. Unset, each command makes
        one: after a restart watches list again, and those sessions have ended. `fleetlight up` keeps one in its data
        folder.
    prometheus_url: the address of a Prometheus that scrapes all processes of the fleet. The console plots the last hour
        of all processes from it; without it, that of the process that answers.
    prometheus_token: a token for it, if it asks for one.
    luxi_socket: path of a unix socket for Ganeti's local queries; its users see the whole fleet. `fleetlight up` has
        one in its folder.
    incomplete_discovery: answer to a discovery of Prometheus while instances may be missing: `last`, the last complete
        answer of the process, or `error`, 503.
    access_log: whether each request is logged, with its address, status and duration (event `request`).
    auth: the strategy that authenticates callers: `none` believes every caller, `basic` and `tokens` have files of
        users (section `identity`), `keystone` asks a Keystone (section `keystone`).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = "127.0.0.1"
    port: int = Field(default=8774, ge=0, le=65535)
    processes: int | None = Field(default=None, ge=1, le=256)
    hosts: tuple[HostName, ...] = ()
    trusted_proxies: tuple[Annotated[str, AfterValidator(_network)], ...] = ()
    max_limit: int = Field(default=1000, ge=1, le=10_000)
    list_records_by_skipping_down_cells: bool = True
    compute_link_prefix: Annotated[str, AfterValidator(_without_trailing_slash)] | None = None
    max_lists: int = Field(default=4, ge=1, le=1000)
    max_live_lists: int = Field(default=2, ge=1, le=1000)
    max_waiting_lists: int = Field(default=256, ge=0, le=100_000)
    list_wait_s: float = Field(default=10.0, gt=0, le=3600)
    max_unread_mib: int = Field(default=512, ge=1, le=100_000)
    max_watches: int = Field(default=200, ge=0, le=100_000)
    max_watches_per_user: int = Field(default=20, ge=0, le=100_000)
    max_watches_per_project: int = Field(default=100, ge=0, le=100_000)
    max_project_metrics: int = Field(default=0, ge=0, le=10_000)
    header_timeout_s: float = Field(default=10.0, gt=0, le=3600)
    body_timeout_s: float = Field(default=30.0, gt=0, le=3600)
    response_timeout_s: float = Field(default=60.0, gt=0, le=3600)
    shutdown_timeout_s: float = Field(default=15.0, gt=0, le=3600)
    watch_key: SecretStr | None = Field(default=None, min_length=16)
    prometheus_url: Annotated[str, AfterValidator(_bare_address)] | None = None
    prometheus_token: SecretStr | None = None
    luxi_socket: Path | None = None
    incomplete_discovery: Literal["last", "error"] = "last"
    access_log: bool = False
    auth: Literal["none", "basic", "tokens", "keystone"] = "none"

    @property
    def served_hosts(self) -> ServedHosts:
        """Return the host names that requests may be for, so that no other site can bind its name to our address."""
        needs_names = is_loopback(self.host) or self.auth == "none"
        if not self.hosts and (self.trusted_proxies or not needs_names):
            return ANY_HOST
        outside = None if self.compute_link_prefix is None else host_of(self.compute_link_prefix)
        return ServedHosts(frozenset({*self.hosts, *filter(None, [outside])}))


class IdentitySettings(BaseModel):
    """The users of the strategies `basic` and `tokens` (`api.auth`), and of the remote API.

    htpasswd_file: strategy `basic`: users, their passwords, projects and roles (lines `name:hash:project:roles`).
    file: strategy `tokens`: users, projects and roles, as `fleetlight identity` writes them.
    max_credentials: strategy `tokens`: application credentials that a user can make over the API;
        `fleetlight identity credential add` is not limited.
    token_lifetime_s: strategies `tokens` and `basic`: lifetime of a token, or of a browser's session, from its login.
    region: strategy `tokens`: the name of this site in the catalog.
    rapi_users_file: users of the remote API at `/2` beside those of the strategy, in the form of Ganeti's file of them
        (lines `name password [read,write]`); they see the whole fleet.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    htpasswd_file: Path | None = None
    file: Path | None = None
    max_credentials: int = Field(default=20, ge=0, le=1000)
    token_lifetime_s: int = Field(default=3600, ge=1, le=7 * 24 * 3600)
    region: str = Field(default="RegionOne", min_length=1, max_length=255)
    rapi_users_file: Path | None = None


class KeystoneSettings(BaseModel):
    """The Keystone of `api.auth = "keystone"`, and the account of this service there.

    auth_url: the address of Keystone.
    username, password: the account of this service there.
    project_name: the project of that account.
    user_domain_name: the domain of the account.
    project_domain_name: the domain of its project.
    region_name: the region of Keystone, if its catalog has several.
    public_url: the address of Keystone in answers to callers that have to log in; auth_url unless set.
    ca_file: certificates that are trusted for TLS, instead of the system's.
    timeout_s: time limit of one request to Keystone.
    cache_time_s: how long an answer about a token is cached; a revoked token stays valid for that long.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    auth_url: Annotated[str, AfterValidator(_without_trailing_slash)] | None = None
    username: str | None = None
    password: SecretStr | None = None
    project_name: str = "service"
    user_domain_name: str = "Default"
    project_domain_name: str = "Default"
    region_name: str | None = None
    public_url: Annotated[str, AfterValidator(_without_trailing_slash)] | None = None
    ca_file: Path | None = None
    timeout_s: int = Field(default=5, ge=1, le=60)
    cache_time_s: int = Field(default=60, ge=0, le=3600)


class OpenIdSettings(BaseModel):
    """The OpenID provider at which browsers log in to the console, besides the logins of `api.auth`.

    issuer: the provider's address, as in its tokens; its discovery document has all other addresses.
    client_id: the name of this service at the provider.
    client_secret: the password of this service there; unset for a public client, which has PKCE alone.
    name: the provider's name in the console: "Sign in with NAME".
    scopes: the scopes that a login requests.
    name_claim: the claim of the ID token with the user's displayed name.
    projects_claim: the claim of the ID token with the user's rights, a list of texts PROJECT:ROLE; others are ignored.
    administrator: the text in that claim that makes the user an administrator; unset: none does.
    ca_file: certificates that are trusted for TLS, instead of those that come with Python's requests.
    timeout_s: time limit of one request to the provider.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    issuer: Annotated[str, AfterValidator(_issuer)] | None = None
    client_id: str | None = Field(default=None, min_length=1)
    client_secret: SecretStr | None = Field(default=None, min_length=1)
    name: str = Field(default="OpenID", min_length=1, max_length=64)
    scopes: tuple[str, ...] = ("openid", "profile")
    name_claim: str = "preferred_username"
    projects_claim: str = "groups"
    administrator: str | None = None
    ca_file: Path | None = None
    timeout_s: int = Field(default=5, ge=1, le=60)

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if (self.issuer is None) != (self.client_id is None):
            raise ValueError("issuer and client_id are needed together")
        if "openid" not in self.scopes:
            raise ValueError("scopes: must have openid")
        return self


class DeliverySettings(BaseModel):
    """Permitted targets of subscriptions, and limits on failed deliveries.

    allowed_networks: inner addresses, or networks of them, that targets may have; unset: only public addresses. Inner
        are loopback, private, link-local and other addresses that are not routed in the internet.
    allow_unencrypted: whether targets may be http:// and amqp://, besides https:// and amqps://.
    max_attempts: the deliverer puts an event aside after its target has refused it so often.
    suspend_after_d: the deliverer suspends a subscription whose target has accepted nothing for so many days.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    allowed_networks: tuple[Annotated[str, AfterValidator(_network)], ...] = ()
    allow_unencrypted: bool = False
    max_attempts: int = Field(default=8, ge=1, le=100)
    suspend_after_d: float = Field(default=3.0, gt=0, le=365)

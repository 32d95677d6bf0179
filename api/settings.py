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
    """Whether what is sent to `url` can be read by no one on the way: by TLS, or since it leaves no machine."""
    host = host_of(url)
    return host is not None and (url.startswith("https://") or (url.startswith("http://") and is_loopback(host)))


def _issuer(url: str) -> str:
    # As it is: the provider's tokens name the same text, with or without a slash at its end.
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
    hosts: names under which the API is called, besides addresses, localhost and that of compute_link_prefix; a request
        for another one is refused. Unset, a trusted proxy decides that where there is one; without, any name is served
        unless host is a loopback address or auth is `none`.
    trusted_proxies: addresses, or networks, of proxies in front of it. What they say in X-Forwarded-For and
        X-Forwarded-Proto of a caller is believed; what others say there is not.
    max_limit: the largest page; also the page when a request names no limit.
    list_records_by_skipping_down_cells: whether a list may lack the servers of a cell that neither answers nor is in
        the index; otherwise it is an error 500. From 2.69, where there are partial items for them, it has those anyway.
    compute_link_prefix: what links begin with instead of the address that the request was sent to.
    max_lists: pages of lists, queries and counts that one process makes at the same time; more wait.
    max_live_lists: how many pages it makes at the same time for which cells are asked.
    max_waiting_lists: how many pages wait, a quarter of them of one caller; more are refused with 503 at once.
    list_wait_s: how long one waits before it is refused.
    max_unread_mib: how much of large answers callers have not taken yet, a quarter of it one caller; while it is more,
        further pages are refused. As much may be of bodies whose requests are not answered yet; further ones get 503.
    max_watches: streams of changes at the same time, of all processes of one `fleetlight api`.
    max_watches_per_user, max_watches_per_project: how many of them one user, and all users of one project, may have.
    max_project_metrics: of how many projects, those that come first, requests and refusals are counted each by
        itself; all others count together, and with 0 none is.
    header_timeout_s: how long the headers of a request may take to arrive, from the opening of the connection on.
    body_timeout_s: how long the body may take after that; a request that is late gets 408, and the connection ends.
    response_timeout_s: how long a client may take for the next 256 KiB of an answer; then the connection ends.
    shutdown_timeout_s: how long requests that are under way when a process is stopped may take to be answered; new ones
        get 503 meanwhile, and those that are late.
    watch_key: a secret that all processes of one API share. With it they seal the positions of watches, and the
        sessions of logins at an OpenID provider, so that another process can open them, also after a restart. Unset,
        each command makes one: at another command watches list again, and those sessions have ended. `fleetlight up`
        keeps one in its data folder.
    prometheus_url: the address of a Prometheus that scrapes all processes of the fleet. The console's plots of the last
        hour are taken from it, and are of all processes then; without it they are of the process that answers.
    prometheus_token: a token for it, if it asks for one.
    luxi_socket: a unix socket at which Ganeti's local queries are answered; its users see the whole fleet.
        `fleetlight up` has one in its folder.
    incomplete_discovery: what a discovery of Prometheus is answered with while instances may be missing: `last`, the
        last complete answer of the process, or `error`, 503.
    access_log: whether each request is logged, with its address, status and duration (event `request`).
    auth: what authenticates callers: `none` believes every caller, `basic` and `tokens` have files of users
        (section `identity`), `keystone` asks a Keystone (section `keystone`).
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
        """The hosts that requests may be for. A page that takes our address for its own has no login of ours."""
        needs_names = is_loopback(self.host) or self.auth == "none"
        if not self.hosts and (self.trusted_proxies or not needs_names):
            return ANY_HOST
        outside = None if self.compute_link_prefix is None else host_of(self.compute_link_prefix)
        return ServedHosts(frozenset({*self.hosts, *filter(None, [outside])}))


class IdentitySettings(BaseModel):
    """The users that may call, where that is decided here (`api.auth`).

    htpasswd_file: strategy `basic`: users, their passwords, projects and roles (lines `name:hash:project:roles`).
    file: strategy `tokens`: users, projects and roles, as `fleetlight identity` writes them.
    max_credentials: strategy `tokens`: how many application credentials a user can make over the API;
        `fleetlight identity credential add` is not limited.
    token_lifetime_s: strategies `tokens` and `basic`: how long after a login its token, or the session of a browser,
        counts.
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
    """The Keystone that is asked with `api.auth = "keystone"`, and the account of this service there.

    auth_url: the address of Keystone.
    username, password: the account of this service there.
    project_name: the project of that account.
    user_domain_name: the domain of the account.
    project_domain_name: the domain of its project.
    region_name: the region whose address of Keystone is taken, where its catalog has several.
    public_url: the address of Keystone in answers to callers that have to log in; auth_url unless set.
    ca_file: certificates that are trusted for TLS, instead of the system's.
    timeout_s: what one question may cost.
    cache_time_s: how long an answer about a token is believed; a token that is revoked counts for that long.
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

    issuer: the provider's address, as its tokens name it; what else is needed of it, its discovery document says.
    client_id: the name of this service at the provider.
    client_secret: the password of this service there; unset for a public client, which has PKCE alone.
    name: what the console calls the provider: "Sign in with NAME".
    scopes: what the provider is asked for.
    name_claim: the claim of the ID token that is shown as the name of the user.
    projects_claim: the claim of the ID token with the user's rights, a list of texts PROJECT:ROLE; others are ignored.
    administrator: the text in that claim that makes the user an administrator; unset: none does.
    ca_file: certificates that are trusted for TLS, instead of those that come with Python's requests.
    timeout_s: how long one answer of the provider may take.
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
    """Where the events of subscriptions may be delivered to, and how long that is tried.

    allowed_networks: inner addresses, or networks of them, that targets may have; unset: public addresses alone. Inner
        are loopback, private, link-local and other addresses that are not routed in the internet.
    allow_unencrypted: whether targets may be http:// and amqp://, besides https:// and amqps://.
    max_attempts: an event that its target has refused so often is put aside.
    suspend_after_d: a subscription whose target has taken nothing for so many days is suspended.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    allowed_networks: tuple[Annotated[str, AfterValidator(_network)], ...] = ()
    allow_unencrypted: bool = False
    max_attempts: int = Field(default=8, ge=1, le=100)
    suspend_after_d: float = Field(default=3.0, gt=0, le=365)

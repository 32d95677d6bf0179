"""Inventory of the instances of all cells, which ends Ansible where the list is not complete."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any, NoReturn
from urllib.error import HTTPError
from urllib.parse import urlencode

from ansible.errors import AnsibleError, AnsibleParserError
from ansible.module_utils.urls import ConnectionError, open_url
from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable, Constructable

DOCUMENTATION = """
name: instances
short_description: Instances of all cells of Fleetlight
description:
  - Asks C(GET /fleetlight/query); cells and index filter, so only hosts that are wanted are sent.
  - Ends Ansible with code 1, before any play, where the list is not complete or cannot be had, unless
    O(allow_incomplete) is set. Ansible alone would only warn, and run plays on the hosts of other sources.
  - Needs a file whose name ends in C(fleetlight.yml) or C(fleetlight.yaml).
extends_documentation_fragment: [constructed, inventory_cache]
options:
  # Variables are not named FLEETLIGHT_…: those are settings, and `fleetlight` refuses what is none of its own.
  plugin:
    description: V(fleetlight.fleet.instances)
    required: true
    choices: [fleetlight.fleet.instances]
  url:
    description: Address of the API, such as V(https://fleet.example.org).
    required: true
    env: [{name: ANSIBLE_FLEETLIGHT_URL}]
  user:
    description: Name of a user, or id of an application credential.
    env: [{name: ANSIBLE_FLEETLIGHT_USER}]
  password:
    description: Password of the user, or secret of the application credential.
    env: [{name: ANSIBLE_FLEETLIGHT_PASSWORD}]
  token:
    description: A token, instead of O(user) and O(password); at a Keystone this is the only login.
    env: [{name: ANSIBLE_FLEETLIGHT_TOKEN}]
  filter:
    description: Which instances, in the query language, such as V(vm_state == "active" and "web" in tags).
    type: str
  fields:
    description: Fields that hosts have as variables C(fleetlight_FIELD); other characters than letters and digits
      become underscores, as in C(fleetlight_be_memory).
    type: list
    elements: str
    default: [name, uuid, vm_state, tags]
  all_projects:
    description: Instances of all projects, for administrators.
    type: bool
    default: false
  hostname:
    description: Field that names the hosts. Two instances of one name are refused; V(uuid) is never the same.
    type: str
    default: name
  address:
    description: Field with the address that Ansible connects to, or with a list of addresses.
    type: str
    default: ip_addresses
  address_networks:
    description: The first address in one of these networks is taken, such as V(10.0.0.0/8); unless given, any is.
    type: list
    elements: str
    default: []
  allow_incomplete:
    description: Goes on with a list that is not complete; its hosts have C(fleetlight_complete) false then.
    type: bool
    default: false
  timeout:
    description: Seconds until one request must be answered.
    type: int
    default: 60
  ca_path:
    description: File of the certificates to trust, unless those of the system.
    type: path
"""

EXAMPLES = """
plugin: fleetlight.fleet.instances
url: https://fleet.example.org
filter: vm_state == "active" and "web" in tags
keyed_groups:
  - {key: fleetlight_tags, prefix: tag}
"""

Row = Mapping[str, Any]
_Network = IPv4Network | IPv6Network
_UNANSWERED = ("skipped", "index-while-down")


@dataclass(frozen=True, slots=True)
class _Listed:
    """rows: values by field, None where an instance has none. routes: of each page that was not complete."""

    rows: Sequence[Row]
    routes: Sequence[str]

    def why(self) -> str:
        """What is missing; the API names cells to administrators alone."""
        members = (each.partition("=")[::2] for route in self.routes for each in route.split(", "))
        cells = {name for name, route in members if route.partition(";")[0] in _UNANSWERED}
        return f"no answer from {', '.join(sorted(cells))}" if cells else "ask administrators for `fleetlight explain`"


class InventoryModule(BaseInventoryPlugin, Constructable, Cacheable):  # type: ignore[misc]
    """What Ansible loads by the name of the plugin."""

    NAME = "fleetlight.fleet.instances"

    def verify_file(self, path: str) -> bool:
        """Whether the name of the file says that it is for this plugin."""
        return super().verify_file(path) and path.endswith(("fleetlight.yml", "fleetlight.yaml"))

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        """Adds the hosts. Ends Ansible where the list cannot be had whole."""
        super().parse(inventory, loader, path, cache)
        try:
            self._read_config_data(path)
            networks = _networks(self.get_option("address_networks"))
            listed = self._cached(path, cache)
            self._check_complete(listed)
            for name, row in self._by_name(listed.rows).items():
                self._add(name, row, networks, not listed.routes)
        except AnsibleError as error:
            self._refuse(str(error))

    def _refuse(self, why: str) -> NoReturn:
        # Any other exception is a warning to Ansible, which goes on with the hosts that it knows from elsewhere.
        self.display.error(f"fleetlight: {why}", wrap_text=False)
        raise SystemExit(1)

    def _check_complete(self, listed: _Listed) -> None:
        if not listed.routes:
            return
        text = f"The list of instances is not complete: {listed.why()}."
        if not self.get_option("allow_incomplete"):
            raise AnsibleParserError(f"{text} `allow_incomplete: true` goes on with what there is.")
        self.display.warning(f"fleetlight: {text}")

    def _cached(self, path: str, cache: bool) -> _Listed:
        """The list, of the cache of Ansible where it may be; only complete ones are kept, for one set of options."""
        self.load_cache_plugin()
        asked = {name: self.get_option(name) for name in ("url", "user", "token")} | self._question()
        key = self.get_cache_key(path + json.dumps(asked, sort_keys=True))
        is_cached = self.get_option("cache")
        if is_cached and cache and key in self._cache:
            return _Listed(self._cache[key], ())
        listed = self._list()
        if is_cached and not listed.routes:
            self._cache[key] = listed.rows
        return listed

    def _list(self) -> _Listed:
        rows: list[Row] = []
        routes: list[str] = []
        for answer_headers, page in self._pages():
            names = [field["name"] for field in page["fields"]]
            if unknown := [field["name"] for field in page["fields"] if field["kind"] == "unknown"]:
                raise AnsibleParserError(f"No such field, or none for this user: {', '.join(unknown)}.")
            rows += (dict(zip(names, (value for _, value in row), strict=True)) for row in page["data"])
            if answer_headers["Fleetlight-Complete"] != "true":
                routes.append(answer_headers.get("Fleetlight-Route", ""))
        return _Listed(rows, routes)

    def _pages(self) -> Iterator[tuple[Mapping[str, str], Any]]:
        question = self._question()
        while True:
            query = urlencode({name: value for name, value in question.items() if value})
            answered, page = self._ask(f"{self._url()}/fleetlight/query?{query}")
            if "Fleetlight-Complete" not in answered:
                raise AnsibleParserError(f"{self._url()} is not the API of Fleetlight: no header Fleetlight-Complete.")
            yield answered, page
            if page["marker"] is None:
                return
            question["marker"] = page["marker"]

    def _question(self) -> dict[str, str]:
        """Parameters of the query; an empty one is not sent."""
        fields = dict.fromkeys([*self.get_option("fields"), self.get_option("hostname"), self.get_option("address")])
        return {
            "what": "instance",
            "fields": ",".join(fields),
            "filter": self.get_option("filter") or "",
            "all_projects": "1" if self.get_option("all_projects") else "",
        }

    def _url(self) -> str:
        return str(self.get_option("url")).rstrip("/")

    def _login(self) -> Mapping[str, object]:
        """What `open_url` needs to log in: a token, or a name and a password (RFC 7617)."""
        token, user, password = map(self.get_option, ("token", "user", "password"))
        if token:
            return {"headers": {"X-Auth-Token": token}}
        if user and password:
            return {"url_username": user, "url_password": password, "force_basic_auth": True}
        raise AnsibleParserError("Give `token`, or `user` and `password`.")

    def _ask(self, url: str) -> tuple[Mapping[str, str], Any]:
        """Headers and JSON of an answer. Redirects are not followed: the login is for this address alone."""
        how = {"timeout": self.get_option("timeout"), "ca_path": self.get_option("ca_path"), **self._login()}
        try:
            answer = open_url(url, follow_redirects="none", use_netrc=False, **how)
            return answer.headers, json.load(answer)
        except HTTPError as error:
            raise AnsibleParserError(f"{self._url()} refuses ({error.code}): {_message(error)}") from None
        except (OSError, ValueError, HTTPException, ConnectionError) as error:
            raise AnsibleParserError(f"{self._url()} gives no answer: {error}") from None

    def _by_name(self, rows: Sequence[Row]) -> dict[str, Row]:
        """Rows by the names of their hosts, of which none may hide another."""
        field = self.get_option("hostname")
        found: dict[str, Row] = {}
        for row in rows:
            if not (name := row[field]):
                raise AnsibleParserError(f"An instance has no {field}; `hostname: uuid` names each.")
            if found.setdefault(str(name), row) is not row:
                raise AnsibleParserError(f"Two instances have the {field} {name!r}; `hostname: uuid` names each.")
        return found

    def _add(self, name: str, row: Row, networks: Sequence[_Network], is_complete: bool) -> None:
        variables = {f"fleetlight_{re.sub(r'[^A-Za-z0-9]', '_', field)}": value for field, value in row.items()}
        variables["fleetlight_complete"] = is_complete
        addresses = _addresses(row[self.get_option("address")])
        if wanted := [each for each in addresses if not networks or _is_in(each, networks)]:
            variables["ansible_host"] = wanted[0]
        self.inventory.add_host(name)
        for variable, value in variables.items():
            self.inventory.set_variable(name, variable, value)
        strict = self.get_option("strict")
        self._set_composite_vars(self.get_option("compose"), variables, name, strict=strict)
        self._add_host_to_composed_groups(self.get_option("groups"), variables, name, strict=strict)
        self._add_host_to_keyed_groups(self.get_option("keyed_groups"), variables, name, strict=strict)


def _networks(texts: Sequence[str]) -> Sequence[_Network]:
    try:
        return [ip_network(text) for text in texts]
    except ValueError as error:
        raise AnsibleParserError(f"address_networks: {error}") from None


def _addresses(value: object) -> Sequence[str]:
    """Addresses in a field that has one, a list of them, or a list of objects with one each, as `ip_addresses` does."""
    members = value if isinstance(value, list) else [value]
    return [each["address"] if isinstance(each, dict) else str(each) for each in members if each]


def _is_in(address: str, networks: Sequence[_Network]) -> bool:
    try:
        return any(ip_address(address) in network for network in networks)
    except ValueError:
        return False


def _message(error: HTTPError) -> str:
    """What the API says is wrong: an object in an object."""
    try:
        return str(next(iter(json.load(error).values()))["message"])
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration):
        return str(error.reason)

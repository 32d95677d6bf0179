"""Who may do what is what Nova says by default: `tests/nova/default_rules.json` has it in Nova's own words.

A test in tests/integration/nova says whether the file is what Nova has.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from fleetlight.api.identity import Caller
from fleetlight.api.shared.policy import RULES
from tests.contract.compute_fleet import Api, ComputeFleet, microversion

pytestmark = pytest.mark.no_rerun

NOVA = json.loads((Path(__file__).parents[1] / "nova" / "default_rules.json").read_text())
# By the check of the rule: who passes it, in their own project (contracts/nova-rest, section 7).
ALLOWED = {
    "rule:project_reader_or_admin": {"reader", "member", "manager", "admin"},
    "rule:project_member_or_admin": {"member", "manager", "admin"},
    "rule:project_manager_or_admin": {"manager", "admin"},
    "rule:context_is_admin": {"admin"},
    "rule:service_or_admin": {"admin"},  # the role of services is that of Nova's own
}
ROLES_THERE_ARE = ("reader", "member", "manager", "admin", "service", "heat_stack_user")


@pytest.mark.parametrize("rule", RULES)
def test_rule_lets_those_pass_whom_nova_lets_pass(rule: str) -> None:
    assert {role for role in ROLES_THERE_ARE if _passes(role, rule)} == ALLOWED[NOVA[rule]]


def _passes(role: str, rule: str) -> bool:
    return Caller("ada", "demo", frozenset({role})).has_role(RULES[rule])


Asked = tuple[str, str, str, object, str]
SERVER = "/servers/{server}"
NEW = {"name": "web", "flavorRef": "1", "imageRef": "", "networks": "none"}
GROUP = {"name": "a", "policies": ["affinity"]}
# Rule, method, path, body, microversion: what the role below the one that the rule asks for is refused.
REFUSED_TO_MANAGERS: Sequence[Asked] = (
    ("os_compute_api:servers:index:get_all_tenants", "GET", "/servers?all_tenants=1", None, "2.1"),
    ("os_compute_api:servers:detail:get_all_tenants", "GET", "/servers/detail?all_tenants=1", None, "2.1"),
    ("os_compute_api:os-admin-actions:reset_state", "POST", SERVER, {"os-resetState": {"state": "error"}}, "2.1"),
    ("os_compute_api:os-admin-actions:inject_network_info", "POST", SERVER, {"injectNetworkInfo": None}, "2.1"),
    ("os_compute_api:os-evacuate", "POST", SERVER, {"evacuate": {}}, "2.14"),
    ("os_compute_api:os-shelve:shelve_offload", "POST", SERVER, {"shelveOffload": None}, "2.1"),
    ("os_compute_api:os-server-diagnostics", "GET", f"{SERVER}/diagnostics", None, "2.1"),
    ("os_compute_api:servers:migrations:show", "GET", f"{SERVER}/migrations/1", None, "2.23"),
    ("os_compute_api:os-flavor-manage:delete", "DELETE", "/flavors/1", None, "2.1"),
    ("os_compute_api:os-flavor-access", "GET", "/flavors/1/os-flavor-access", None, "2.1"),
    ("os_compute_api:os-flavor-extra-specs:delete", "DELETE", "/flavors/1/os-extra_specs/a", None, "2.1"),
    ("os_compute_api:os-flavor-extra-specs:create", "POST", "/flavors/1/os-extra_specs", {"extra_specs": {}}, "2.1"),
    ("os_compute_api:os-flavor-extra-specs:update", "PUT", "/flavors/1/os-extra_specs/a", {"a": "b"}, "2.1"),
    ("os_compute_api:limits:other_project", "GET", "/limits?tenant_id=other", None, "2.1"),
    ("os_compute_api:os-availability-zone:detail", "GET", "/os-availability-zone/detail", None, "2.1"),
    ("os_compute_api:os-quota-sets:update", "PUT", "/os-quota-sets/demo", {"quota_set": {}}, "2.1"),
    ("os_compute_api:os-quota-sets:delete", "DELETE", "/os-quota-sets/demo", None, "2.1"),
    ("os_compute_api:os-quota-class-sets:show", "GET", "/os-quota-class-sets/default", None, "2.1"),
    (
        "os_compute_api:os-quota-class-sets:update",
        "PUT",
        "/os-quota-class-sets/default",
        {"quota_class_set": {}},
        "2.1",
    ),
    ("os_compute_api:os-simple-tenant-usage:list", "GET", "/os-simple-tenant-usage", None, "2.1"),
    ("os_compute_api:os-services:list", "GET", "/os-services", None, "2.1"),
    ("os_compute_api:os-services:delete", "DELETE", "/os-services/1", None, "2.1"),
    ("os_compute_api:os-hosts:list", "GET", "/os-hosts", None, "2.1"),
    ("os_compute_api:os-hosts:show", "GET", "/os-hosts/h", None, "2.1"),
    ("os_compute_api:os-hosts:update", "PUT", "/os-hosts/h", {"status": "enable"}, "2.1"),
    ("os_compute_api:os-hosts:start", "GET", "/os-hosts/h/startup", None, "2.1"),
    ("os_compute_api:os-hosts:shutdown", "GET", "/os-hosts/h/shutdown", None, "2.1"),
    ("os_compute_api:os-hosts:reboot", "GET", "/os-hosts/h/reboot", None, "2.1"),
    ("os_compute_api:os-hypervisors:list", "GET", "/os-hypervisors", None, "2.1"),
    ("os_compute_api:os-hypervisors:list-detail", "GET", "/os-hypervisors/detail", None, "2.1"),
    ("os_compute_api:os-hypervisors:show", "GET", "/os-hypervisors/1", None, "2.1"),
    ("os_compute_api:os-hypervisors:statistics", "GET", "/os-hypervisors/statistics", None, "2.1"),
    ("os_compute_api:os-hypervisors:uptime", "GET", "/os-hypervisors/1/uptime", None, "2.1"),
    ("os_compute_api:os-hypervisors:search", "GET", "/os-hypervisors/h/search", None, "2.1"),
    ("os_compute_api:os-hypervisors:servers", "GET", "/os-hypervisors/h/servers", None, "2.1"),
    ("os_compute_api:os-instance-usage-audit-log:list", "GET", "/os-instance_usage_audit_log", None, "2.1"),
    ("os_compute_api:os-instance-usage-audit-log:show", "GET", "/os-instance_usage_audit_log/2020", None, "2.1"),
    ("os_compute_api:os-aggregates:index", "GET", "/os-aggregates", None, "2.1"),
    ("os_compute_api:os-aggregates:create", "POST", "/os-aggregates", {"aggregate": {"name": "a"}}, "2.1"),
    ("os_compute_api:os-aggregates:show", "GET", "/os-aggregates/1", None, "2.1"),
    ("os_compute_api:os-aggregates:delete", "DELETE", "/os-aggregates/1", None, "2.1"),
    ("compute:servers:create:requested_destination", "POST", "/servers", {"server": NEW | {"host": "h"}}, "2.74"),
)
REFUSED_TO_MEMBERS: Sequence[Asked] = (
    ("os_compute_api:os-migrate-server:migrate", "POST", SERVER, {"migrate": None}, "2.1"),
    ("os_compute_api:os-migrations:index", "GET", "/os-migrations", None, "2.1"),
    ("os_compute_api:servers:migrations:index", "GET", f"{SERVER}/migrations", None, "2.23"),
)
REFUSED_TO_READERS: Sequence[Asked] = (
    ("os_compute_api:servers:create", "POST", "/servers", {"server": NEW}, "2.37"),
    ("os_compute_api:servers:update", "PUT", SERVER, {"server": {"name": "a"}}, "2.1"),
    ("os_compute_api:servers:delete", "DELETE", SERVER, None, "2.1"),
    ("os_compute_api:os-server-groups:create", "POST", "/os-server-groups", {"server_group": GROUP}, "2.1"),
    ("os_compute_api:server-metadata:update_all", "PUT", f"{SERVER}/metadata", {"metadata": {}}, "2.1"),
    ("os_compute_api:os-server-tags:delete_all", "DELETE", f"{SERVER}/tags", None, "2.26"),
)
BELOW = {
    "manager": REFUSED_TO_MANAGERS,
    "member": REFUSED_TO_MEMBERS,
    "reader": REFUSED_TO_READERS,
}


@pytest.fixture(scope="module")
def server(fleet: ComputeFleet) -> str:
    return fleet.create("north")


@pytest.mark.parametrize(("role", "asked"), [(role, asked) for role, group in BELOW.items() for asked in group])
def test_request_is_refused_to_the_role_below_by_the_name_of_its_rule(
    api: Api, server: str, role: str, asked: Asked
) -> None:
    rule, method, path, body, version = asked
    place = path.replace("{server}", server) + ("/action" if path == SERVER and method == "POST" else "")
    content = {} if body is None else {"json": body}
    response = api.request(method, f"/v2.1{place}", {"X-Roles": role, **microversion(version)}, **content)
    assert response.status_code == 403, response.text
    assert f" {rule} " in response.json()["forbidden"]["message"]

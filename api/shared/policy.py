"""Rules of access: one table for all handlers (contracts/nova-rest, section 7).

A rule names the role that the caller needs in the project of a resource. Rules do not check the project: each lookup
finds only resources of projects that the caller may see. Nova checks a rule after the body and the lookup, so handlers
call `authorize` there, and not the middleware.
"""

from fleetlight.api.caller import Caller
from fleetlight.api.http.errors import ForbiddenError

_READER = (
    "servers:index",
    "servers:detail",
    "servers:show",
    "ips:index",
    "ips:show",
    "server-metadata:index",
    "server-metadata:show",
    "os-server-tags:index",
    "os-server-tags:show",
    "os-instance-actions:list",
    "os-instance-actions:show",
    "os-attach-interfaces:list",
    "os-attach-interfaces:show",
    "os-volumes-attachments:index",
    "os-volumes-attachments:show",
    "os-security-groups:list",
    "os-server-password:show",
    "compute:server:topology:index",
    "os-server-shares:index",
    "os-flavor-extra-specs:index",
    "os-flavor-extra-specs:show",
    "os-quota-sets:show",
    "os-quota-sets:detail",
    "os-simple-tenant-usage:show",
    "os-server-groups:index",
    "os-server-groups:show",
)
_MEMBER = (
    "servers:create",
    "servers:create_image",
    "servers:update",
    "servers:delete",
    "servers:start",
    "servers:stop",
    "servers:reboot",
    "servers:rebuild",
    "servers:resize",
    "servers:confirm_resize",
    "servers:revert_resize",
    "servers:trigger_crash_dump",
    "os-pause-server:pause",
    "os-pause-server:unpause",
    "os-suspend-server:suspend",
    "os-suspend-server:resume",
    "os-lock-server:lock",
    "os-lock-server:unlock",
    "os-rescue",
    "os-unrescue",
    "os-shelve:shelve",
    "os-shelve:unshelve",
    "os-create-backup",
    "os-admin-password",
    "os-deferred-delete:restore",
    "os-deferred-delete:force",
    "os-console-output",
    "os-remote-consoles",
    "os-attach-interfaces:create",
    "os-attach-interfaces:delete",
    "os-volumes-attachments:create",
    "os-volumes-attachments:update",
    "os-volumes-attachments:delete",
    "os-security-groups:add",
    "os-security-groups:remove",
    "os-server-password:clear",
    "server-metadata:create",
    "server-metadata:update",
    "server-metadata:update_all",
    "server-metadata:delete",
    "os-server-tags:update",
    "os-server-tags:update_all",
    "os-server-tags:delete",
    "os-server-tags:delete_all",
    "os-server-groups:create",
    "os-server-groups:delete",
)
_MANAGER = (
    "os-migrate-server:migrate",
    "os-migrate-server:migrate_live",
    "os-migrations:index",
    "servers:migrations:index",
    "servers:migrations:force_complete",
    "servers:migrations:delete",
)
_ADMIN = (
    "servers:create:forced_host",
    "compute:servers:create:requested_destination",
    "servers:create:zero_disk_flavor",
    "servers:index:get_all_tenants",
    "servers:detail:get_all_tenants",
    "os-admin-actions:reset_state",
    "os-admin-actions:inject_network_info",
    "os-evacuate",
    "os-shelve:shelve_offload",
    "os-shelve:unshelve_to_host",
    "os-lock-server:unlock:unlock_override",
    "os-migrate-server:migrate:host",
    "os-migrate-server:migrate_live:host",
    "os-migrations:index:all_projects",
    "servers:migrations:show",
    "os-server-diagnostics",
    "os-server-external-events:create",
    "os-instance-actions:events",
    "os-instance-actions:events:details",
    "os-flavor-manage:create",
    "os-flavor-manage:update",
    "os-flavor-manage:delete",
    "os-flavor-access",
    "os-flavor-access:add_tenant_access",
    "os-flavor-access:remove_tenant_access",
    "os-flavor-extra-specs:create",
    "os-flavor-extra-specs:update",
    "os-flavor-extra-specs:delete",
    "limits:other_project",
    "os-availability-zone:detail",
    "os-quota-sets:update",
    "os-quota-sets:delete",
    "os-quota-class-sets:show",
    "os-quota-class-sets:update",
    "os-simple-tenant-usage:list",
    "os-services:list",
    "os-services:update",
    "os-services:delete",
    "os-hosts:list",
    "os-hosts:show",
    "os-hosts:update",
    "os-hosts:start",
    "os-hosts:shutdown",
    "os-hosts:reboot",
    "os-hypervisors:list",
    "os-hypervisors:list-detail",
    "os-hypervisors:show",
    "os-hypervisors:statistics",
    "os-hypervisors:uptime",
    "os-hypervisors:search",
    "os-hypervisors:servers",
    "os-instance-usage-audit-log:list",
    "os-instance-usage-audit-log:show",
    "os-aggregates:index",
    "os-aggregates:create",
    "os-aggregates:show",
    "os-aggregates:update",
    "os-aggregates:delete",
    "os-aggregates:add_host",
    "os-aggregates:remove_host",
    "os-aggregates:set_metadata",
    "compute:aggregates:images",
)
_PREFIX = "os_compute_api:"


def full_name(rule: str) -> str:
    """Return Nova's name of a rule, which a refusal names."""
    return rule if rule.startswith("compute:") else _PREFIX + rule


# The role that a rule demands, by the full name of the rule.
RULES = {
    full_name(rule): role
    for role, rules in (("reader", _READER), ("member", _MEMBER), ("manager", _MANAGER), ("admin", _ADMIN))
    for rule in rules
}


def authorize(caller: Caller, rule: str) -> None:
    """Raise ForbiddenError, naming `rule` (a key of RULES), if the caller lacks the role that it demands."""
    if not caller.has_role(RULES[rule]):
        raise ForbiddenError(rule)

"""The table of rules: each role may do what it may, and what the roles below it may."""

import pytest

from fleetlight.api.caller import ROLES
from fleetlight.api.identity import Caller
from fleetlight.api.shared.policy import RULES

pytestmark = pytest.mark.no_rerun


def may(role: str, rule: str) -> bool:
    return Caller("ada", "demo", frozenset({role})).has_role(RULES[rule])


@pytest.mark.parametrize(
    ("rule", "lowest"),
    [
        ("os_compute_api:servers:detail", "reader"),
        ("os_compute_api:servers:create", "member"),
        ("os_compute_api:os-server-tags:update", "member"),
        ("os_compute_api:os-migrate-server:migrate", "manager"),
        ("os_compute_api:os-admin-actions:reset_state", "admin"),
        ("compute:servers:create:requested_destination", "admin"),
    ],
)
def test_a_rule_lets_its_role_and_those_above_it_pass(rule: str, lowest: str) -> None:
    allowed = [role for role in ROLES if may(role, rule)]
    assert allowed == list(ROLES[: ROLES.index(lowest) + 1])


@pytest.mark.parametrize("rule", RULES)
def test_roles_of_others_and_no_role_at_all_may_nothing(rule: str) -> None:
    assert not may("heat_stack_user", rule)
    assert not Caller("ada", "demo", frozenset()).has_role(RULES[rule])

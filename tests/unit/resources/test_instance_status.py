"""Which status of Ganeti an instance has, by what is wanted of it and what nodes say."""

from typing import Any

import pytest

from fleetlight.resources.query_fields.cluster_parameters import filled_cluster
from fleetlight.resources.query_fields.ganeti import kept_in_part
from fleetlight.resources.query_fields.instance_status import Seen, may_shut_down, observed_status

RUNS: dict[str, Any] = {"state": 0}
SHUT: dict[str, Any] = {"state": 1}


def record(state: str | None = None, **values: Any) -> dict[str, Any]:
    """An instance that is wanted to run, or to be in the state that it says itself."""
    said = values if state is None else {"admin_state": state, **values}
    return {"vm_state": "active", "forthcoming": False, "ganeti": kept_in_part(said)}


@pytest.mark.parametrize(
    ("wanted", "seen", "status"),
    [
        (record(), Seen(is_offline=True, elsewhere=RUNS), "ERROR_nodeoffline"),
        (record(), Seen(has_failed=True), "ERROR_nodedown"),
        (record(), Seen(has_failed=True, elsewhere=RUNS), "ERROR_wrongnode"),
        (record("down"), Seen(guest=SHUT, elsewhere=RUNS), "ERROR_wrongnode"),
        (record(), Seen(guest=RUNS, elsewhere=RUNS), "running"),
        (record("offline"), Seen(guest=RUNS), "ERROR_up"),
        (record(), Seen(guest=SHUT), "ERROR_down"),
        (record(), Seen(guest=SHUT, may_shut_down=True), "USER_down"),
        (record("offline"), Seen(guest=SHUT), "ADMIN_down"),
        (record(), Seen(), "ERROR_down"),
        (record("down"), Seen(), "ADMIN_down"),
        (record("offline"), Seen(), "ADMIN_offline"),
        (record("down", admin_state_source="user"), Seen(), "ADMIN_down"),
        (record("down", admin_state_source="user"), Seen(may_shut_down=True), "USER_down"),
    ],
)
def test_first_rule_that_fits_counts(wanted: dict[str, Any], seen: Seen, status: str) -> None:
    assert observed_status(wanted, seen) == status


@pytest.mark.parametrize(
    ("cluster", "values", "may"),
    [
        ({}, {}, False),
        ({"enabled_user_shutdown": True}, {}, False),
        ({"enabled_user_shutdown": True}, {"custom_hvparams": {"user_shutdown": True}}, True),
        ({"enabled_user_shutdown": True}, {"hypervisor": "fake"}, True),
        ({}, {"hypervisor": "fake"}, False),
    ],
    ids=str,
)
def test_shutdown_from_inside_has_to_be_allowed_by_the_cell_and_with_kvm_by_the_instance(
    cluster: dict[str, Any], values: dict[str, Any], may: bool
) -> None:
    assert may_shut_down(record(**values), filled_cluster(cluster)) is may

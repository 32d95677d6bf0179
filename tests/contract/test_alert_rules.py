"""Each fault of the fault table raises the alert that names it, and without a fault no alert is raised."""

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import yaml

from bench.faults.faults import FAULTS
from tests.support.pages.metrics_page import metrics
from tests.support.servers.prometheus import CHECKOUT, EXAMPLE, RULES, alert_rules, panels

_NO_FAULT = "no fault"
_AT = "10m"
# Twice that of the example: with half of the points the same alerts are raised in half of the time.
_INTERVAL_S = 30
_LENGTH = 25
_NAME = re.compile(r"\b(?:fleetlight|process)_[a-z_]+\b")
# Alternatives of one name that a rule writes together.
_TOGETHER = re.compile(r"fleetlight_\(([a-z|]+)\)(_[a-z_]+)")

_A, _B, _C = 'cell="a"', 'cell="b"', 'cell="disabled"'


def always(value: float) -> str:
    return f"{value:g}x{_LENGTH}"


def growing(step: float, start: float = 0) -> str:
    """By `step` each second."""
    return f"{start:g}+{step * _INTERVAL_S:g}x{_LENGTH}"


GONE = f"_x{_LENGTH}"

WELL: Mapping[str, str] = {
    'up{job="fleetlight",process="api",instance="api:9100"}': always(1),
    'up{job="fleetlight",process="indexer",instance="indexer:9100"}': always(1),
    'up{job="fleetlight",process="relay",instance="relay:9100"}': always(1),
    'up{job="fleetlight",process="relay",instance="standby:9100"}': always(1),
    'fleetlight_build_info{version="1",instance="api:9100"}': always(1),
    'fleetlight_build_info{version="1",instance="relay:9100"}': always(1),
    'process_open_fds{job="fleetlight",process="api"}': always(90),
    'process_max_fds{job="fleetlight",process="api"}': always(1024),
    "fleetlight_safe_connect_tripped": always(0),
    "fleetlight_api_fleet_reachable": always(1),
    f'fleetlight_cell_info{{{_A},name="east"}}': always(1),
    f'fleetlight_cell_info{{{_B},name="west"}}': always(1),
    f'fleetlight_cell_info{{{_C},name="old"}}': always(1),
    f"fleetlight_cell_disabled{{{_A}}}": always(0),
    f"fleetlight_cell_disabled{{{_B}}}": always(0),
    f"fleetlight_cell_disabled{{{_C}}}": always(1),
    f"fleetlight_cell_hangs{{{_A}}}": always(0),
    f"fleetlight_api_index_age_seconds{{{_A}}}": always(1.5),
    f"fleetlight_api_index_age_seconds{{{_B}}}": always(2),
    f"fleetlight_api_index_age_seconds{{{_C}}}": growing(1),
    f"fleetlight_indexer_complete{{{_A}}}": always(1),
    f"fleetlight_indexer_complete{{{_C}}}": always(0),
    f'fleetlight_indexer_followed_by_log{{{_A},instance="indexer:9100"}}': always(1),
    f'fleetlight_indexer_followed_by_log{{{_A},instance="standby:9100"}}': always(0),
    f"fleetlight_indexer_followed_by_log{{{_B}}}": always(0),
    'fleetlight_clock_offset_seconds{job="fleetlight",process="indexer"}': always(-0.2),
    'fleetlight_clock_offset_seconds{job="fleetlight",process="api"}': always(0.1),
    f"fleetlight_indexer_dead_letters{{{_A}}}": always(0),
    f"fleetlight_indexer_queue_messages{{{_A}}}": always(500),
    f"fleetlight_indexer_holes_total{{{_A}}}": always(3),
    f"fleetlight_indexer_cell_restored_total{{{_A}}}": always(1),
    "fleetlight_indexer_index_replaced_total": always(1),
    "fleetlight_indexer_seal_broken_total": always(1),
    "fleetlight_indexer_seal_held_seconds": growing(1),
    f"fleetlight_mappings_elsewhere{{{_A}}}": always(0),
    f"fleetlight_mappings_repaired_total{{{_A}}}": always(2),
    f"fleetlight_indexer_audit_suspected{{{_A}}}": always(0),
    f'fleetlight_indexer_audited_seconds{{{_A},compared="revisions"}}': growing(1),
    f'fleetlight_indexer_audited_seconds{{{_A},compared="content"}}': always(-86400),
    f'fleetlight_indexer_audited_seconds{{{_C},compared="revisions"}}': always(-7200),
    f'fleetlight_indexer_failures_total{{{_A},kind="IndexUnavailableError"}}': always(7),
    f'fleetlight_indexer_failures_total{{{_A},kind="CellUnreachableError"}}': always(2),
    f'fleetlight_relay_active{{{_A},instance="relay:9100"}}': always(1),
    f'fleetlight_relay_active{{{_A},instance="standby:9100"}}': always(0),
    f"fleetlight_relay_lag_seconds{{{_A}}}": always(0.1),
    f'fleetlight_relay_failures_total{{{_A},kind="BusUnavailableError"}}': always(4),
    f"fleetlight_relay_look_seconds_sum{{{_A}}}": growing(0.02),
    f"fleetlight_relay_look_seconds_count{{{_A}}}": growing(5),
    'fleetlight_api_requests_total{method="GET",route="/v2.1/servers",status="200"}': growing(50),
    'fleetlight_api_requests_total{method="GET",route="/v2.1/servers",status="404"}': growing(1),
    'fleetlight_lists_total{route="index",complete="yes"}': growing(50),
    'fleetlight_lists_total{route="cells",complete="no"}': always(0),
    'fleetlight_api_requests_total{method="GET",route="/v2.1/servers",status="503"}': always(9),
    'fleetlight_lists_refused_total{queue="lists",reason="own"}': always(9),
    'fleetlight_list_duration_seconds_bucket{route="index",le="0.5"}': growing(50),
    'fleetlight_list_duration_seconds_bucket{route="index",le="5.0"}': growing(50),
    'fleetlight_list_duration_seconds_bucket{route="index",le="+Inf"}': growing(50),
    'fleetlight_discoveries_total{answer="complete"}': growing(0.02),
    'fleetlight_discoveries_total{answer="last"}': always(7),
    'fleetlight_findings{kind="not-running"}': always(0),
    'fleetlight_findings{kind="mapping-repaired"}': always(1),
    f"fleetlight_worker_oldest_waiting_job_seconds{{{_A}}}": always(4),
    f'fleetlight_worker_ended_jobs_total{{{_A},status="success"}}': growing(2),
    f'fleetlight_worker_ended_jobs_total{{{_A},status="error"}}': growing(0.1),
    'fleetlight_deliverer_subscriptions{state="failing"}': always(2),
    'fleetlight_deliverer_subscriptions{state="suspended"}': always(0),
}
"""What Prometheus has of a fleet with a disabled cell, whose processes have waited for something in the past."""

_SEAL_BROKEN = ({"fleetlight_indexer_seal_broken_total": growing(0.01)}, {"FleetlightIndexSealBroken"})
_INDEX_FAILS = {
    f'fleetlight_indexer_failures_total{{{_A},kind="IndexUnavailableError"}}': growing(0.2),
    f"fleetlight_api_index_age_seconds{{{_A}}}": growing(1),
}
_INDEX_AWAY = {
    **_INDEX_FAILS,
    "fleetlight_safe_connect_tripped": always(1),
    f"fleetlight_api_index_age_seconds{{{_A}}}": GONE,
    f"fleetlight_api_index_age_seconds{{{_B}}}": GONE,
}
_BUS_AWAY = {
    f'fleetlight_relay_failures_total{{{_A},kind="BusUnavailableError"}}': growing(0.2),
    f'fleetlight_relay_active{{{_A},instance="relay:9100"}}': always(0),
    f"fleetlight_relay_lag_seconds{{{_A}}}": growing(1),
    f"fleetlight_api_index_age_seconds{{{_A}}}": growing(1),
}
_DATABASES_AWAY = {
    "fleetlight_api_fleet_reachable": always(0),
    f'fleetlight_indexer_failures_total{{{_A},kind="CellUnreachableError"}}': growing(0.2),
    f'fleetlight_relay_active{{{_A},instance="relay:9100"}}': always(0),
    f"fleetlight_api_index_age_seconds{{{_A}}}": growing(1),
}

CASES: Mapping[str, tuple[Mapping[str, str], set[str]]] = {
    _NO_FAULT: ({}, set()),
    "indexer killed": (
        {
            'up{job="fleetlight",process="indexer",instance="indexer:9100"}': always(0),
            f"fleetlight_api_index_age_seconds{{{_A}}}": growing(1),
        },
        {"FleetlightProcessDown", "FleetlightIndexStale"},
    ),
    "relay killed": (
        {
            'up{job="fleetlight",process="relay",instance="relay:9100"}': always(0),
            f'fleetlight_relay_active{{{_A},instance="relay:9100"}}': GONE,
        },
        {"FleetlightProcessDown", "FleetlightNoRelay"},
    ),
    "relay hangs": (
        {
            'up{job="fleetlight",process="relay",instance="relay:9100"}': always(0),
            f'fleetlight_relay_active{{{_A},instance="relay:9100"}}': GONE,
            f'fleetlight_relay_active{{{_A},instance="standby:9100"}}': always(1),
        },
        {"FleetlightProcessDown"},
    ),
    "index damaged": (
        {
            f"fleetlight_indexer_audit_suspected{{{_A}}}": always(1),
            "fleetlight_indexer_index_replaced_total": growing(0.01),
        },
        {"FleetlightIndexDiffers", "FleetlightIndexReplaced"},
    ),
    "vandal": _SEAL_BROKEN,
    "vandal and a kill": _SEAL_BROKEN,
    "vandal in SQLite": _SEAL_BROKEN,
    "vandal in SQLite and a kill": _SEAL_BROKEN,
    "elasticsearch killed": (_INDEX_AWAY, {"FleetlightIndexAway"}),
    "rabbitmq stopped": (
        _BUS_AWAY,
        {"FleetlightBusAway", "FleetlightNoRelay", "FleetlightRelayLags", "FleetlightIndexStale"},
    ),
    "postgresql killed": (
        _DATABASES_AWAY,
        {"FleetlightFleetDatabaseAway", "FleetlightCellAway", "FleetlightNoRelay", "FleetlightIndexStale"},
    ),
    "index cut off": (_INDEX_AWAY, {"FleetlightIndexAway"}),
    "bus cut off": (
        _BUS_AWAY,
        {"FleetlightBusAway", "FleetlightNoRelay", "FleetlightRelayLags", "FleetlightIndexStale"},
    ),
    "unruly bus": ({f"fleetlight_indexer_holes_total{{{_A}}}": growing(0.02)}, {"FleetlightMessagesLost"}),
    "poison": ({f"fleetlight_indexer_dead_letters{{{_A}}}": always(2)}, {"FleetlightDeadLetters"}),
    # Two relays and two indexers are no fault: one of each is active. Two that are would be one.
    "everything twice": (
        {f'fleetlight_relay_active{{{_A},instance="standby:9100"}}': always(1)},
        {"FleetlightTwoRelays"},
    ),
    "clock jumps": (
        {'fleetlight_clock_offset_seconds{job="fleetlight",process="indexer"}': always(-7200)},
        {"FleetlightClocksDiffer"},
    ),
    "clock of an API wrong": (
        {'fleetlight_clock_offset_seconds{job="fleetlight",process="api"}': always(-15)},
        {"FleetlightClocksDiffer"},
    ),
    "fleet database restored": (
        {f"fleetlight_mappings_repaired_total{{{_A}}}": growing(0.1)},
        {"FleetlightMappingsRepaired"},
    ),
    "cell restored": (
        {f"fleetlight_indexer_cell_restored_total{{{_A}}}": growing(0.1)},
        {"FleetlightCellRestored"},
    ),
    "full cluster": (_INDEX_FAILS, {"FleetlightIndexTakesNothing", "FleetlightIndexStale"}),
    "full disk": (_INDEX_FAILS, {"FleetlightIndexTakesNothing", "FleetlightIndexStale"}),
    "slow cell": ({f"fleetlight_relay_look_seconds_sum{{{_A}}}": growing(2)}, {"FleetlightCellSlow"}),
    # What has no row of its own in the fault table.
    "a subscription is suspended": (
        {'fleetlight_deliverer_subscriptions{state="suspended"}': always(1)},
        {"FleetlightSubscriptionSuspended"},
    ),
    "a cell hangs": ({f"fleetlight_cell_hangs{{{_A}}}": always(1)}, {"FleetlightCellAway"}),
    "a cell is not followed": (
        {f"fleetlight_api_index_age_seconds{{{_B}}}": GONE},
        {"FleetlightCellNotFollowed"},
    ),
    "the log of a database server may not be read any more": (
        {f'fleetlight_indexer_followed_by_log{{{_A},instance="indexer:9100"}}': f"1x8 {always(0)}"},
        {"FleetlightLogNotFollowed"},
    ),
    "a queue grows": (
        {f"fleetlight_indexer_queue_messages{{{_A}}}": always(200_000)},
        {"FleetlightQueueGrows"},
    ),
    "lists lack a cell": (
        {'fleetlight_lists_total{route="cells",complete="no"}': growing(5)},
        {"FleetlightListsIncomplete"},
    ),
    "lists are slow": (
        {'fleetlight_list_duration_seconds_bucket{route="index",le="0.5"}': growing(1)},
        {"FleetlightListsSlow"},
    ),
    "requests fail": (
        {'fleetlight_api_requests_total{method="GET",route="/v2.1/servers",status="500"}': growing(10)},
        {"FleetlightRequestsFail"},
    ),
    "lists are refused": (
        {
            'fleetlight_lists_refused_total{queue="lists",reason="own"}': growing(20),
            'fleetlight_api_requests_total{method="GET",route="/v2.1/servers",status="503"}': growing(20),
        },
        {"FleetlightListsRefused"},
    ),
    "no indexer looks at the seal": (
        {"fleetlight_indexer_seal_held_seconds": always(0)},
        {"FleetlightIndexSealUnknown"},
    ),
    "the audit does not get round": (
        {f'fleetlight_indexer_audited_seconds{{{_A},compared="revisions"}}': always(-3600)},
        {"FleetlightAuditSlow"},
    ),
    "the audit does not get round to content": (
        {f'fleetlight_indexer_audited_seconds{{{_A},compared="content"}}': always(-7 * 86400)},
        {"FleetlightAuditSlow"},
    ),
    "discoveries are not complete": (
        {'fleetlight_discoveries_total{answer="last"}': growing(0.02)},
        {"FleetlightDiscoveryIncomplete"},
    ),
    "guests are off that should be on": (
        {'fleetlight_findings{kind="not-running"}': always(3)},
        {"FleetlightFindings"},
    ),
    "jobs wait": (
        {f"fleetlight_worker_oldest_waiting_job_seconds{{{_A}}}": growing(1, start=300)},
        {"FleetlightJobsWait"},
    ),
    "jobs fail": (
        {f'fleetlight_worker_ended_jobs_total{{{_A},status="error"}}': growing(2)},
        {"FleetlightJobsFail"},
    ),
    "files run out": (
        {'process_open_fds{job="fleetlight",process="api"}': always(1000)},
        {"FleetlightFilesRunOut"},
    ),
}
_SLOW_TO_COME = {"FleetlightVersionsDiffer", "FleetlightIndexIncomplete", "FleetlightMappingsElsewhere"}
"""Alerts that wait for longer than these cases take."""


def test_every_fault_of_the_table_has_a_case() -> None:
    assert FAULTS.keys() - CASES.keys() == set()


def test_every_alert_is_raised_by_a_case() -> None:
    assert set().union(*(expected for _, expected in CASES.values())) == alert_rules().keys() - _SLOW_TO_COME


@pytest.mark.parametrize("name", CASES)
def test_case_changes_what_there_is_without_a_fault(name: str) -> None:
    changed, _ = CASES[name]
    assert {series for series in changed.keys() - WELL.keys() if 'status="500"' not in series} == set()


def test_each_fault_raises_its_alerts_and_no_fault_none(promtool: Path, tmp_path: Path) -> None:
    tests = [
        {
            "name": name,
            "interval": f"{_INTERVAL_S}s",
            "input_series": [{"series": key, "values": value} for key, value in {**WELL, **changed}.items()],
            "promql_expr_test": [
                {
                    "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                    "eval_time": _AT,
                    "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(expected)],
                }
            ],
        }
        for name, (changed, expected) in CASES.items()
    ]
    check(promtool, tmp_path, tests)


def test_summary_of_an_alert_has_the_name_of_its_cell(promtool: Path, tmp_path: Path) -> None:
    rule = alert_rules()["FleetlightDeadLetters"]
    series = {**WELL, f"fleetlight_indexer_dead_letters{{{_A}}}": always(2)}
    expected = {
        "exp_labels": {"severity": "warning", "cell": "a"},
        "exp_annotations": {
            "summary": "2 messages of the cell could not be indexed",
            "cell": "east",
            "runbook": rule["annotations"]["runbook"],
        },
    }
    test = {
        "interval": f"{_INTERVAL_S}s",
        "input_series": [{"series": key, "values": value} for key, value in series.items()],
        "alert_rule_test": [{"eval_time": _AT, "alertname": "FleetlightDeadLetters", "exp_alerts": [expected]}],
    }
    check(promtool, tmp_path, [test])


def test_example_of_the_configuration_is_valid(promtool: Path) -> None:
    checked = subprocess.run([promtool, "check", "config", EXAMPLE], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("alert", alert_rules())
def test_rule_says_what_to_do_and_what_it_is_about(alert: str) -> None:
    rule = alert_rules()[alert]
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert rule["annotations"]["summary"]
    assert (CHECKOUT / rule["annotations"]["runbook"]).is_file()
    assert ("cell" in rule["annotations"]) == ("by (cell)" in rule["expr"])


def test_document_says_after_how_long_each_alert_comes_and_of_which_faults() -> None:
    rows = {}
    for line in (CHECKOUT / "docs" / "operations" / "monitoring.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("| `Fleetlight"):
            name, after, _, faults = (cell.strip() for cell in line.strip("|").split("|"))
            rows[name.strip("`")] = after, faults
    assert list(rows) == list(alert_rules())
    assert {name: after for name, (after, _) in rows.items()} == {
        name: re.sub(r"(\d+)(\w)", r"\1 \2", rule.get("for", "at once")) for name, rule in alert_rules().items()
    }
    told = {fault for _, faults in rows.values() for fault in FAULTS if fault in faults}
    assert FAULTS.keys() - told == set()


@pytest.mark.parametrize("name", [*alert_rules(), *panels()])
def test_expression_uses_metrics_that_there_are(name: str) -> None:
    expressions = [alert_rules()[name]["expr"]] if name in alert_rules() else panels()[name]
    known = {series for shown in metrics().values() for series in shown.series}
    for expression in expressions:
        together = {f"fleetlight_{one}{end}" for ones, end in _TOGETHER.findall(expression) for one in ones.split("|")}
        names = set(_NAME.findall(_TOGETHER.sub("", expression))) | together
        assert names - known == set()
        assert names or "up{" in expression or "ALERTS" in expression


def check(promtool: Path, folder: Path, tests: Sequence[Mapping[str, object]]) -> None:
    file = folder / "tests.yml"
    file.write_text(
        yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": f"{_INTERVAL_S}s", "tests": list(tests)}),
        encoding="utf-8",
    )
    checked = subprocess.run([promtool, "test", "rules", file], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr

"""Which failed tests may run a second time, and which never: what `scripts/test --all` asks after its first run.

A test that needs a second chance is a fault to be looked into. So few get one, and none of those that say whether
data is damaged, whether an answer is complete, or who may see what: of those a single failure is the finding.
"""

from collections.abc import Collection
from pathlib import Path

AGAIN = 30
"""Exit status of pytest: some tests failed, and may run once more; `scripts/test` knows it too."""

MOST_RUN_AGAIN = 2

NAMES = Path("build/tests-run-again.txt")
"""The names of the tests that a run has run again, in the checkout."""

ONE_CHANCE = (
    "tests/property/",
    "tests/unit/query/",
    "tests/unit/indexer/",
    "tests/unit/listing/",
    "tests/unit/api/test_policy.py",
    "tests/contract/test_backends.py",
    "tests/contract/test_completeness",
    "tests/contract/test_compute_readers.py",
    "tests/contract/test_damaged_",
    "tests/contract/test_down_cells_of_nova.py",
    "tests/contract/test_identity_",
    "tests/contract/test_list_",
    "tests/contract/test_own_changes.py",
    "tests/contract/test_ownership.py",
    "tests/contract/test_rules_of_nova.py",
    "tests/contract/test_secrets.py",
    "tests/contract/test_tokens.py",
    "tests/contract/test_watch_rights.py",
    "tests/integration/cells/test_damaged_jobs.py",
    "tests/integration/cells/test_relay.py",
    "tests/integration/cells/test_strange_rows.py",
    "tests/integration/nova/test_list_",
    "tests/integration/test_access_control.py",
    "tests/integration/test_cell_removal.py",
    "tests/integration/test_cells_cut_off.py",
    "tests/integration/test_compilers_real.py",
    "tests/integration/test_faults.py",
    "tests/integration/test_forged_messages.py",
    "tests/integration/test_identity_keystone.py",
    "tests/integration/test_list_",
    "tests/integration/test_partly_written.py",
    "tests/integration/test_rebuild.py",
    "tests/integration/test_removed_documents.py",
    "tests/integration/test_restored_cell.py",
    "tests/integration/test_sync_",
    "tests/integration/test_verify.py",
)
"""How the addresses begin of tests about damage, completeness and tenancy."""


def may_run_again(failed: Collection[str], skipped: int) -> bool:
    """Whether a run in which these tests failed (their pytest addresses) gets a second one.

    skipped: how many tests did not run at all. The second run would not run them either, and look as if all had passed.
    """
    return 0 < len(failed) <= MOST_RUN_AGAIN and not skipped and not any(map(_has_one_chance, failed))


def _has_one_chance(address: str) -> bool:
    return address.startswith(ONE_CHANCE)

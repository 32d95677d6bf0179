"""Which instances a changed row belongs to, however much of the row was logged."""

import pytest

from fleetlight.cells.kinds.nova_db import tables
from fleetlight.cells.kinds.nova_db.commit_log.touched import OWNERS, Touched, is_harmless

ONE, OTHER = "8a02cae4-35a0-431a-ac44-7d07a29b5ea1", "8a02cae4-35a0-431a-ac44-7d07a29b5ea2"
COLUMNS = {"id": 0, "uuid": 2, "instance_uuid": 2, "resource_id": 0, "group_id": 1}
# Of hosts, which lists ask about live, and of the deployment itself.
OF_NO_INSTANCE = {"services", "compute_nodes", "cell_mappings"}


def test_every_table_that_is_read_names_its_instances() -> None:
    assert OWNERS.keys() | OF_NO_INSTANCE == tables.metadata.tables.keys()


def touched(table: str, *images: dict[str, object]) -> Touched:
    made = Touched()
    made.take_row(table, COLUMNS, images)
    return made


def test_row_names_its_instance_by_the_place_of_a_column_or_by_its_name() -> None:
    assert touched("instances", {"UNKNOWN_COL0": 7, "UNKNOWN_COL2": ONE}).uuids == {ONE}
    assert touched("instances", {"id": 7, "uuid": ONE}).uuids == {ONE}
    assert touched("instances", {"UNKNOWN_COL0": 7, "UNKNOWN_COL2": ONE.upper().encode()}).uuids == {ONE}


def test_row_that_changes_hands_touches_both_instances() -> None:
    before, after = {"UNKNOWN_COL0": 7, "UNKNOWN_COL2": ONE}, {"UNKNOWN_COL0": 7, "UNKNOWN_COL2": OTHER}
    assert touched("instance_metadata", before, after).uuids == {ONE, OTHER}


def test_row_that_was_logged_in_part_is_looked_up_by_its_key() -> None:
    found = touched("instance_metadata", {"UNKNOWN_COL0": 7, "UNKNOWN_COL2": None}, {"UNKNOWN_COL0": None})
    assert not found.has_unknown
    assert found.keys == {("instance_metadata", "instance_uuid", "id"): {7}}


def test_members_of_a_group_are_looked_up_by_the_group() -> None:
    found = touched("instance_groups", {"UNKNOWN_COL0": 7})
    assert found.keys == {("instance_group_member", "instance_uuid", "group_id"): {7}}


@pytest.mark.parametrize(
    ("table", "image"),
    [
        ("instance_metadata", {"UNKNOWN_COL0": 7, "UNKNOWN_COL2": None}),
        ("instances", {"UNKNOWN_COL0": None, "UNKNOWN_COL2": None}),
        ("instances", {"UNKNOWN_COL0": 7, "UNKNOWN_COL2": "a name, since the columns were moved"}),
    ],
)
def test_removed_row_that_does_not_say_whose_it_was_may_have_been_any(table: str, image: dict[str, object]) -> None:
    assert touched(table, image).has_unknown


def test_more_than_a_comparison_reads_sooner_may_be_any() -> None:
    made = Touched()
    made.add([f"{number:08x}-0000-4000-8000-000000000000" for number in range(50_001)])
    assert made.has_unknown
    assert not made.uuids
    made.take_row("instances", COLUMNS, [{"UNKNOWN_COL2": ONE}])
    assert not made.uuids


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("BEGIN", True),
        ("COMMIT", True),
        ("SAVEPOINT `sa_savepoint_1`", True),
        ("ROLLBACK TO `sa_savepoint_1`", True),
        ("ALTER TABLE instances ADD x INT", False),
        ("UPDATE instances SET host = NULL", False),
        ("XA COMMIT 'x'", False),
        ("BEGINNING", False),
    ],
)
def test_only_what_divides_transactions_touches_nothing(statement: str, expected: bool) -> None:
    assert is_harmless(statement) is expected

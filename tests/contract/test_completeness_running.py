"""No answer claims to be complete when it is not, while real relays, a real bus and real indexers do their work.

Messages get lost and damaged on the way, indexers are stopped and started, cells hang, fail, and are disabled, the
index fails, and all kinds of upkeep happen; and after each step somebody lists (tests/contract/running_world.py).
"""

import random
from pathlib import Path

import pytest

from tests.contract.compute_fleet import CELLS, ComputeFleet
from tests.contract.running_world import World
from tests.contract.upkeep_world import NOVA, UpkeepWorld
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.night, pytest.mark.no_rerun, pytest.mark.timeout(300)]

STEPS = 60


def test_complete_answers_are_complete_whatever_happens_between_cells_and_index(
    fleet_of_any_store: ComputeFleet,
) -> None:
    generator = random.Random(2)
    world = World(fleet_of_any_store, generator)
    for number in range(6):
        world.create(CELLS[number % len(CELLS)], number)
    complete = 0
    with world.running():
        for number in range(10, STEPS + 10):
            cell = generator.choice(CELLS)
            match generator.choice(["create", "change", "change", "change", "fail", "fail", "heal", "settle"]):
                case "create":
                    world.create(cell, number)
                case "change":
                    world.change(cell, number)
                case "fail":
                    world.fail(cell)
                case "heal":
                    world.heal()
                case "settle":
                    world.heal()
                    wait_until(world.is_all_indexed)
            complete += world.check_lists()
        world.heal()
        wait_until(world.is_all_indexed)
    assert complete, "this checks nothing"


def test_complete_answers_are_complete_while_indexes_are_rebuilt_and_cells_restored_and_removed(
    fleet_of_any_store: ComputeFleet, tmp_path: Path
) -> None:
    generator = random.Random(5)
    world = UpkeepWorld(fleet_of_any_store, generator, tmp_path)
    for number in range(1, 7):
        world.create(CELLS[number % len(CELLS)], number)
        world.create_in_nova(number + 10)
    upkeep = ["rebuild", "purge", "backup", "restore", "remove", "restore", "backup", "restore"]
    complete = 0
    with world.running():
        wait_until(world.is_all_indexed)
        for number in range(100, 100 + 3 * len(upkeep)):
            cell = generator.choice(CELLS)
            is_due = number % 3 == 0
            match upkeep[number // 3 % len(upkeep)] if is_due else generator.choice(["change", "change", "fail"]):
                case "change":
                    world.create(cell, number)
                    world.change(cell, number)
                    world.create_in_nova(number)
                    world.change_nova(number)
                case "fail":
                    world.fail(generator.choice([cell, NOVA]))
                case "rebuild":
                    world.rebuild()
                case "purge":
                    world.purge()
                case "backup":
                    world.back_up("east")
                case "restore":
                    world.restore("east")
                case "remove":
                    world.remove_and_add_again("south")
            complete += world.check_lists()
        world.settle()
    assert min(complete, world.complete) > 0, "this checks nothing"

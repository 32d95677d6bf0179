"""Up to where everything was delivered, of events that end in any order."""

from itertools import permutations

from fleetlight.cells.epochs import Position
from fleetlight.delivery.run import Progress


def at(number: int) -> dict[str, Position]:
    return {"cell": Position("epoch", number)}


def test_position_is_the_lowest_before_which_all_has_ended() -> None:
    for order in permutations(range(4)):
        progress = Progress()
        steps = [progress.begin(at(number)) for number in range(4)]
        ended: set[int] = set()
        for number in order:
            progress.end(steps[number])
            ended.add(number)
            lowest = next((each for each in range(5) if each not in ended), 0)
            assert progress.reached == (at(lowest - 1) if lowest else None)


def test_event_without_a_position_holds_back_those_behind_it() -> None:
    progress = Progress()
    first, second, third = progress.begin(at(1)), progress.begin(None), progress.begin(at(3))
    progress.end(first)
    progress.end(third)
    assert progress.reached == at(1)
    progress.end(second)
    assert progress.reached == at(3)

from collections.abc import Iterator

import pytest

from cells.interpreter_slot import TURN, in_turns


def test_items_are_made_in_turns_and_used_outside_of_them() -> None:
    def made() -> Iterator[int]:
        for number in range(3):
            assert TURN.locked()
            yield number

    used = []
    for number in in_turns(made()):
        assert not TURN.locked()
        used.append(number)
    assert used == [0, 1, 2]


def test_a_turn_ends_with_what_goes_wrong_in_it() -> None:
    def broken() -> Iterator[int]:
        yield 0
        raise ValueError

    items = in_turns(broken())
    assert next(items) == 0
    with pytest.raises(ValueError):  # noqa: PT011  # it is ours
        next(items)
    assert not TURN.locked()

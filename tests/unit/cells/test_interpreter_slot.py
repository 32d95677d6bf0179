from collections.abc import Iterator

import pytest

from cells.interpreter_slot import INTERPRETER_SLOT, in_slots


def test_items_are_made_in_turns_and_used_outside_of_them() -> None:
    def made() -> Iterator[int]:
        for number in range(3):
            assert INTERPRETER_SLOT.locked()
            yield number

    used = []
    for number in in_slots(made()):
        assert not INTERPRETER_SLOT.locked()
        used.append(number)
    assert used == [0, 1, 2]


def test_a_turn_ends_with_what_goes_wrong_in_it() -> None:
    def broken() -> Iterator[int]:
        yield 0
        raise ValueError

    items = in_slots(broken())
    assert next(items) == 0
    with pytest.raises(ValueError):  # noqa: PT011  # it is ours
        next(items)
    assert not INTERPRETER_SLOT.locked()

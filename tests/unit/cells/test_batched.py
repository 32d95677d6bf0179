"""Going through many things some at a time."""

from fleetlight.cells.batched import batched


def test_every_item_is_in_one_batch_in_its_order() -> None:
    assert list(batched("abcde", 2)) == [["a", "b"], ["c", "d"], ["e"]]
    assert list(batched("", 2)) == []

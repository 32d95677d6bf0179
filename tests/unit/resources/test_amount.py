"""One size for what nodes have and instances take up."""

import pytest

from fleetlight.resources.amount import Amount


def test_sum_of_amounts_and_what_is_left_of_one() -> None:
    node, instance = Amount(16, 4096, 20_480), Amount(20, 512, 1024)
    assert node + instance == Amount(36, 4608, 21_504)
    assert node - instance == Amount(-4, 3584, 19_456)
    assert sum([node, instance], Amount()) == node + instance


@pytest.mark.parametrize("larger", [Amount(3, 4, 5), Amount(2, 5, 5), Amount(2, 4, 6)])
def test_amount_fits_where_there_is_as_much_of_each_resource(larger: Amount) -> None:
    assert Amount(2, 4, 5).fits_into(Amount(2, 4, 5))
    assert not larger.fits_into(Amount(2, 4, 5))


def test_disk_is_given_and_read_in_whole_gib() -> None:
    assert Amount.of_gib(1, 2, 3) == Amount(1, 2, 3072)
    assert Amount(disk_mib=4095).disk_gib == 3

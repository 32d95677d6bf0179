"""`itertools.batched`, which Python has from 3.12 on."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """`items` in lists of `size`, the last of which may be shorter."""
    remaining = iter(items)
    while batch := list(islice(remaining, size)):
        yield batch

"""Checks of uuids, and numbers for clients that do not know uuids."""

from uuid import UUID

_NUMBER_DIGITS = 13


def is_uuid(text: str) -> bool:
    """Whether `text` is a uuid in any of its spellings."""
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def number_of(uuid: str) -> int:
    """A number for a uuid, which is the same in every answer and, unlike row numbers, differs between cells.

    It has 52 bits, which every JSON parser can read: two of ten thousand uuids share one with a probability of 1e-8.
    """
    return int(UUID(uuid).hex[:_NUMBER_DIGITS], 16)


def beginning_of(number: int) -> str:
    """The prefix of the uuids with this number, in their usual spelling; a number with too many digits matches none."""
    digits = f"{number:0{_NUMBER_DIGITS}x}"
    return f"{digits[:8]}-{digits[8:-1]}-{digits[-1]}"

"""Texts that look like uuids, and numbers for clients that know no uuids."""

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
    """A number for what has a uuid, the same in every answer and, unlike row numbers, another one in every cell.

    Of 52 bits, which every JSON parser can read: two of ten thousand things share one with a probability of 1e-8.
    """
    return int(UUID(uuid).hex[:_NUMBER_DIGITS], 16)


def beginning_of(number: int) -> str:
    """What the uuids begin with that have this number, in their usual spelling; none begins like a larger number."""
    digits = f"{number:0{_NUMBER_DIGITS}x}"
    return f"{digits[:8]}-{digits[8:-1]}-{digits[-1]}"

"""What looks like a uuid, and numbers for clients that know no uuids."""

from uuid import UUID


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
    return UUID(uuid).int >> 76

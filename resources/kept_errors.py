"""Errors that are kept after they were raised, for an answer to name them."""

from typing import TypeVar

E = TypeVar("E", bound=BaseException)


def without_frames(error: E) -> E:
    """`error`, without the frames that it and its causes went through.

    Frames hold what an error was raised over, such as a body of megabytes, and in the end what keeps the error: all of
    that would stay until garbage is looked for.
    """
    found: list[BaseException | None] = [error]
    known: set[int] = set()
    while found:
        each = found.pop()
        if each is None or id(each) in known:
            continue
        known.add(id(each))
        each.__traceback__ = None
        if each.__suppress_context__:
            # Nobody is shown it, and it may hold what it complains of.
            each.__context__ = None
        found += each.__cause__, each.__context__
        if isinstance(each, BaseExceptionGroup):
            found += each.exceptions
    return error

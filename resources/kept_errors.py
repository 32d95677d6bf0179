"""Errors that are stored after they were raised, so that an answer can name them."""

from typing import TypeVar

E = TypeVar("E", bound=BaseException)


def without_frames(error: E) -> E:
    """`error` without the tracebacks of itself and its causes.

    Frames refer to large objects, such as a body of megabytes, and finally to the holder of the error itself: all of
    them would stay until garbage collection.
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
            # It is never shown, and may refer to large objects.
            each.__context__ = None
        found += each.__cause__, each.__context__
        if isinstance(each, BaseExceptionGroup):
            found += each.exceptions
    return error

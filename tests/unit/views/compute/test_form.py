"""The number of the form of kept texts: who changes what would be made of some record is told to give it a new one.

Two things tell. The texts of some records have changed: then it needs a new number. The code that makes texts has
changed: then whoever did that looks whether some record has another text now, one that is not in the list too.
"""

import hashlib
import inspect
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from resources import server_status
from resources.fields import from_microseconds
from tests.support.telling_records import telling_records
from views.compute import kept, members, view
from views.compute.kept import FORM, KEPT_FIELDS, to_text
from views.compute.view import PIECE_NAMES

MAKE_TEXTS: tuple[ModuleType | Callable[..., Any], ...] = (
    members,
    server_status,
    kept.kept_fields,
    to_text,
    view.render_view,
    view._joined,
    from_microseconds,
)


def digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def test_texts_have_the_form_that_its_number_stands_for() -> None:
    """Another digest, of the same records: give the form a new number. More records alone: it keeps its number."""
    assert (FORM, digest([*KEPT_FIELDS, *PIECE_NAMES, *map(to_text, telling_records())])) == (1, "2eed74517affafa9")


def test_code_that_makes_texts_is_what_its_number_stands_for() -> None:
    """Another digest: give the form a new number, unless no record whatever has another text than before.

    When in doubt take a new one. It costs a minute of each upgrade; the wrong one leaves indexes wrong in silence.
    """
    assert (FORM, digest(map(inspect.getsource, MAKE_TEXTS))) == (1, "5d5b485b9bcceb8a")

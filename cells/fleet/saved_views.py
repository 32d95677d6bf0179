"""Views of lists that users save: item type, filter, columns and order."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any
from uuid import uuid4

from sqlalchemy import Row, and_, delete, func, insert, or_, select, true, update
from sqlalchemy.exc import IntegrityError

from fleetlight.cells.errors import QuotaExceededError, ResourceExistsError, ResourceNotFoundError
from fleetlight.cells.fleet.database import FleetDatabase
from fleetlight.cells.fleet.tables import saved_views

MAX_OF_USER = 100


@dataclass(frozen=True, slots=True)
class ViewContent:
    """The content of a view. what: an item type. filter: its text, empty for none.

    fields, order: names of fields of that type, as in a query. shared: whether others see the view.
    """

    name: str
    what: str
    filter: str
    fields: Sequence[str]
    order: Sequence[str]
    shared: bool


@dataclass(frozen=True, slots=True)
class SavedView:
    """A view of the user `user_id`. project_id: that of the user at the last save, with which the view is shared."""

    id: str
    user_id: str
    project_id: str | None
    content: ViewContent


_COLUMNS = saved_views.c
_CONTENT = [_COLUMNS[name] for name in ViewContent.__dataclass_fields__]


class SavedViews:
    """All views. Calls block, and raise FleetUnreachableError, and ResourceExistsError for a second view of a name."""

    def __init__(self, database: FleetDatabase) -> None:
        self._database = database

    def seen_by(self, user_id: str, project_id: str | None, *, all_projects: bool) -> list[SavedView]:
        """The views of a user, then those that others share with its project, or with any; by name."""
        of_project = true() if all_projects else _COLUMNS.project_id == project_id
        is_own = _COLUMNS.user_id == user_id
        statement = (
            select(_COLUMNS.id, _COLUMNS.user_id, _COLUMNS.project_id, *_CONTENT)
            .where(or_(is_own, and_(_COLUMNS.shared, of_project)))
            .order_by(is_own.desc(), _COLUMNS.name, _COLUMNS.id)
        )
        with self._database.reading() as connection:
            return [_view(row) for row in connection.execute(statement)]

    def find(self, view_id: str) -> SavedView:
        """The view with this id. Raises ResourceNotFoundError."""
        statement = select(_COLUMNS.id, _COLUMNS.user_id, _COLUMNS.project_id, *_CONTENT).where(_COLUMNS.id == view_id)
        with self._database.reading() as connection:
            row = connection.execute(statement).one_or_none()
        if row is None:
            raise ResourceNotFoundError("Saved view", view_id)
        return _view(row)

    def add(self, user_id: str, project_id: str | None, content: ViewContent) -> SavedView:
        """Add a view. Raises QuotaExceededError for more than MAX_OF_USER, unless calls for a user run concurrently."""
        view = SavedView(str(uuid4()), user_id, project_id, content)
        values = {"id": view.id, "user_id": user_id, "project_id": project_id, **asdict(content)}
        with _refusing_names_twice(content.name), self._database.writing() as connection:
            connection.execute(insert(saved_views).values(values))
            count = connection.scalar(select(func.count()).where(_COLUMNS.user_id == user_id)) or 0
            if count > MAX_OF_USER:
                raise QuotaExceededError("saved_views", requested=1, in_use=count - 1, limit=MAX_OF_USER)
        return view

    def replace(self, view_id: str, project_id: str | None, content: ViewContent) -> None:
        """Replace the content of a view. project_id: that of its owner now. Raises ResourceNotFoundError."""
        changed = update(saved_views).where(_COLUMNS.id == view_id).values(project_id=project_id, **asdict(content))
        with _refusing_names_twice(content.name), self._database.writing() as connection:
            if not connection.execute(changed).rowcount:
                raise ResourceNotFoundError("Saved view", view_id)

    def remove(self, view_id: str) -> None:
        """Remove a view, if it exists."""
        with self._database.writing() as connection:
            connection.execute(delete(saved_views).where(_COLUMNS.id == view_id))


@contextmanager
def _refusing_names_twice(name: str) -> Iterator[None]:
    try:
        yield
    except IntegrityError as error:
        raise ResourceExistsError(f"A view called '{name}' exists already.") from error


def _view(row: Row[Any]) -> SavedView:
    values = dict(row._mapping)
    content = ViewContent(**{name: values.pop(name) for name in ViewContent.__dataclass_fields__})
    return SavedView(**values, content=content)

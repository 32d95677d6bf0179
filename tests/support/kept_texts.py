"""What a native cell keeps of its instances for the index, compared with their rows."""

from sqlalchemy import Engine, select

from cells.kinds.native.instance_rows import FIELDS_TEXT, KEPT_TEXT, dialect_of, read_fields
from tests.support.shown_items import shown_items
from views.compute.kept import KeptInstance, KeptRecord, kept_fields
from views.compute.view import render_view


def assert_kept_texts_are_those_of_the_rows(engine: Engine) -> int:
    """What is kept of a row says what the row says, member by member. Returns of how many rows."""
    statement = select(FIELDS_TEXT[dialect_of(engine)], KEPT_TEXT).where(KEPT_TEXT.is_not(None))
    with engine.connect() as connection:
        found = connection.execute(statement).all()
    for fields, kept in found:
        record = read_fields(fields)
        kept_record, view = KeptInstance("", 1, record["uuid"], kept).read()
        assert kept_record == KeptRecord(record["uuid"], kept_fields(record))
        assert shown_items(view) == shown_items(render_view(record))
    return len(found)

"""Names of keys and types of columns, for the tables of fleet and cells."""

from sqlalchemy import JSON, BigInteger, Dialect, Integer, LargeBinary, String, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import TypeDecorator

NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}
# Texts sort by code point in every cell (fleetlight.query.sort). This is SQLite's default, but not PostgreSQL's.
BINARY_TEXT = Text().with_variant(Text(collation="C"), "postgresql")
JSON_VALUE = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
# SQLite numbers rows itself only if the column's type is exactly INTEGER.
ROW_NUMBER = BigInteger().with_variant(Integer(), "sqlite")
UUID_TEXT = String(36)


class Bytes(TypeDecorator[bytes]):
    """A column of bytes. SQLite may store text in it, which readers get as bytes."""

    impl = LargeBinary
    cache_ok = True

    def process_result_value(self, value: bytes | str | None, dialect: Dialect) -> bytes | None:
        return value.encode() if isinstance(value, str) else value

"""Counts -> SQL, by GROUP BY."""

from typing import Any

from sqlalchemy import ColumnElement, FromClause, Select, distinct, func, select, true
from sqlalchemy.sql.selectable import TableValuedAlias

from fleetlight.query.counts import CountRequest
from fleetlight.query.sql import SqlDialect
from fleetlight.query.to_sql import FieldColumns, to_sql


def count_statement(
    table: FromClause, columns: FieldColumns, request: CountRequest, dialect: SqlDialect, *leading: ColumnElement[Any]
) -> Select[Any]:
    """The groups, one more than the request has at the most: `leading`, the values, and how many.

    leading: what makes groups besides. Raises NotExpressibleError as `to_sql` does; MySQL has no lists.
    """
    rows, values, has_lists = table, list(leading), False
    for name in request.by:
        value = columns[name]
        if request.item_type[name].is_list:
            # A row for each member, and one for an empty list. Members may repeat.
            members = _members(value, dialect).alias(f"members_of_{name}")
            rows, value, has_lists = rows.outerjoin(members, true()), members.c.value, True
        values.append(value)
    number = func.count(distinct(columns[request.item_type.unique])) if has_lists else func.count()
    wanted = to_sql(request.filter, columns, request.item_type, dialect)
    counted = select(*values, number).select_from(rows).where(wanted)
    return counted.group_by(*values).limit(request.max_groups + 1) if values else counted


def _members(stored: ColumnElement[Any], dialect: SqlDialect) -> TableValuedAlias:
    if dialect == "postgresql":
        return func.jsonb_array_elements_text(stored).table_valued("value")
    return func.json_each(stored).table_valued("value")

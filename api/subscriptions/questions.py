"""The query of a subscription: a query of the feed of changes with its owner's rights."""

from collections.abc import Sequence

from fleetlight.api.caller import Caller
from fleetlight.api.changes.parameters import changes_query, why_unnumbered
from fleetlight.api.http.errors import BadRequestError
from fleetlight.api.http.query_string import QueryString
from fleetlight.api.query.item_query import ItemQuery, refuse_unknown_fields
from fleetlight.api.query.scope import projects_of
from fleetlight.cells.fleet.subscriptions import SubscriptionContent
from fleetlight.cells.model import Cell

OPERATOR = "operator"
OPERATOR_ROLES = ("admin",)


def caller_of(content: SubscriptionContent) -> Caller:
    """Return the owner as a caller, with the rights at the time of making the subscription."""
    return Caller(content.user_id or OPERATOR, content.project_id, frozenset(content.roles))


def question_of(content: SubscriptionContent, cells: Sequence[Cell]) -> ItemQuery:
    """Make the query. cells: those of the fleet. Raises the errors of `changes_query`, ForbiddenError for projects of
    others, and BadRequestError for an unknown field, or for unnumbered changes.
    """
    pairs = [("what", content.what), ("filter", content.filter), ("fields", ",".join(content.fields))]
    pairs += [("all_projects", "1")] if content.all_projects else []
    caller = caller_of(content)
    projects_of(caller, all_projects=content.all_projects)
    question = changes_query(QueryString(pairs), caller).question
    refuse_unknown_fields("fields", content.fields, question.known)
    if (why := why_unnumbered(question, cells)) is not None:
        raise BadRequestError(f"{why}; what is not numbered is not delivered")
    return question

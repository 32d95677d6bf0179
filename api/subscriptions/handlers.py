"""`/fleetlight/subscriptions`: callers make and manage subscriptions here; deliverers deliver them.

The user who made a subscription sees it in the project of that login. Administrators see it, too, but may not see the
whole address of its target.
"""

import secrets
from base64 import b64encode
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

from pydantic import Field, SecretStr
from starlette.responses import Response

from fleetlight.api.bodies.body_types import Name
from fleetlight.api.bodies.request_body import Body, RequestModel
from fleetlight.api.caller import Caller, with_implied
from fleetlight.api.documented import ApiOperation
from fleetlight.api.http.answers import empty_answer, json_answer
from fleetlight.api.http.errors import BadRequestError, ConflictError, ForbiddenError, ParameterError
from fleetlight.api.http.shapes import BOOL, INTEGER, TEXT, ListOf, Shape, or_null
from fleetlight.api.identity.openid.strategy import OpenIdIdentity
from fleetlight.api.identity.rights import KnowsRoles
from fleetlight.api.limits.large_bodies import made_aside
from fleetlight.api.query.item_query import MAX_FIELDS, number_in, size_of
from fleetlight.api.query.saved_views import MAX_FILTER
from fleetlight.api.services import Services
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.times import time_shown, with_zone
from fleetlight.api.subscriptions.brokers import is_broker, without_password
from fleetlight.api.subscriptions.events import other_event
from fleetlight.api.subscriptions.questions import question_of
from fleetlight.api.subscriptions.targets import MAX_URL, SECRET_PREFIX, TargetRules, check_key
from fleetlight.cells.errors import ResourceNotFoundError
from fleetlight.cells.fleet.subscriptions import (
    MAX_FAILURES,
    FailedDelivery,
    Subscription,
    SubscriptionContent,
    SubscriptionState,
)

T = TypeVar("T")

_MOST = 100
_CONFIRMED_FOR_US = 3600 * 1_000_000
_KEY_BYTES = 32


class SubscriptionBody(RequestModel):
    """A new subscription. filter: a text, empty for all. fields: those of events. all_projects: for administrators.

    url: of the webhook, or of the broker with its password. secret: the key that signs webhooks; unset: a new one.
    """

    name: Name
    what: str = "instance"
    filter: Annotated[str, Field(max_length=MAX_FILTER)] = ""
    fields: Annotated[list[str], Field(max_length=MAX_FIELDS)] = Field(default_factory=list)
    all_projects: bool = False
    url: Annotated[SecretStr, Field(min_length=1, max_length=MAX_URL)]
    secret: SecretStr | None = None


class FailuresBody(RequestModel):
    """Failures to replay or skip. ids: from the list of failures; unset: all."""

    ids: Annotated[list[str], Field(max_length=MAX_FAILURES)] | None = None


NEW_SUBSCRIPTION: Body[SubscriptionBody] = Body(SubscriptionBody)
_CHOSEN: Body[FailuresBody] = Body(FailuresBody)
_SHOWN: dict[str, Any] = {
    **dict.fromkeys(("id", "name", "what", "filter"), TEXT),
    "fields": ListOf(TEXT),
    "all_projects": BOOL,
    **dict.fromkeys(("target", "state"), TEXT),
    "reason": or_null(TEXT),
    **dict.fromkeys(("owner", "project"), or_null(TEXT)),
    "mine": BOOL,
    "created_at": TEXT,
    "complete": or_null(BOOL),
    "delivered": INTEGER,
    **dict.fromkeys(("delivered_at", "failing_since", "last_error"), or_null(TEXT)),
    "failures": INTEGER,
}
_SUBSCRIPTION = Shape(_SHOWN)
_FAILURE = Shape(
    {
        **dict.fromkeys(("id", "event", "type"), TEXT),
        "subject": or_null(TEXT),
        "reason": TEXT,
        "times": INTEGER,
        "failed_at": TEXT,
        "waiting": BOOL,
        "body": TEXT,
    }
)
_COUNT = Shape({"count": INTEGER})
_ALL, _ONE = "/fleetlight/subscriptions", "/fleetlight/subscriptions/{id}"
_FAILURES = f"{_ONE}/failures"
SUBSCRIPTIONS = ApiOperation(
    "GET",
    _ALL,
    Shape({"subscriptions": ListOf(_SUBSCRIPTION)}),
    faults=(),
    summary="One's own subscriptions; administrators see all",
)
SUBSCRIBE = ApiOperation(
    "POST",
    _ALL,
    Shape(_SHOWN | {"secret": or_null(TEXT)}),
    success=201,
    body=NEW_SUBSCRIPTION,
    faults=(400, 403, 404),
    summary="Let changes of what a filter lets pass be delivered to a target; the answer alone shows its key",
)
SUBSCRIPTION = ApiOperation("GET", _ONE, _SUBSCRIPTION, faults=(404,), summary="How far a subscription is")
UNSUBSCRIBE = ApiOperation("DELETE", _ONE, success=204, faults=(404,), summary="Remove a subscription")
PAUSE = ApiOperation(
    "POST", f"{_ONE}/pause", _SUBSCRIPTION, faults=(404, 409), summary="Deliver nothing until it is resumed"
)
RESUME = ApiOperation(
    "POST", f"{_ONE}/resume", _SUBSCRIPTION, faults=(404, 409), summary="Go on where deliveries had stopped"
)
TEST = ApiOperation(
    "POST",
    f"{_ONE}/test",
    Shape({"id": TEXT}),
    success=202,
    faults=(404, 409),
    summary="Deliver an event that means nothing; while it is not taken, it is in the list of failures",
)
FAILURES = ApiOperation(
    "GET",
    _FAILURES,
    Shape({"failures": ListOf(_FAILURE), "marker": or_null(TEXT)}),
    query=("limit", "marker"),
    faults=(400, 403, 404),
    summary="Events that the target has refused, the oldest first",
)
REPLAY = ApiOperation(
    "POST",
    f"{_FAILURES}/replay",
    _COUNT,
    success=202,
    body=_CHOSEN,
    faults=(400, 404),
    summary="Deliver events again that the target has refused",
)
SKIP = ApiOperation(
    "POST", f"{_FAILURES}/skip", _COUNT, body=_CHOSEN, faults=(400, 404), summary="Forget events that were refused"
)


class SubscriptionHandlers:
    def __init__(self, services: Services) -> None:
        self._access = services.access
        self._store = services.parts.fleet.subscriptions
        self._cells = services.parts.cells
        self._clock = services.parts.clock
        self._rules = TargetRules(services.parts.delivery)
        self._identity = services.parts.identity

    async def index(self, request: ApiRequest) -> Response:
        """`GET /fleetlight/subscriptions`"""
        found = await self._access.ask(partial(self._all_of, request.caller))
        return json_answer({"subscriptions": [_shown(each, request.caller) for each in found]})

    async def create(self, request: ApiRequest) -> Response:
        """`POST /fleetlight/subscriptions`"""
        body, caller = await NEW_SUBSCRIPTION.read(request), request.caller
        await self._require_lasting_rights(caller)
        content, secret = checked(body, caller, self._rules)
        cells = await self._cells.cells()
        await made_aside(size_of(content.filter), lambda: question_of(content, cells))
        added = await self._access.ask(lambda: self._store.add(content, secret, self._clock()))
        return json_answer(_shown(added, caller) | {"secret": key_of(content, secret)}, 201)

    async def _require_lasting_rights(self, caller: Caller) -> None:
        """Raise BadRequestError for a user whose rights a deliverer could not look up."""
        identity = self._identity
        programs = identity.programs if isinstance(identity, OpenIdIdentity) else identity
        if isinstance(programs, KnowsRoles) and await programs.roles_of(caller.user_id, caller.project_id) is None:
            raise BadRequestError(
                "A subscription ends when its owner has lost its rights, and yours cannot be looked up without you: "
                "your OpenID provider tells them when you log in. Subscribe as a user that programs log in as."
            )

    async def show(self, request: ApiRequest) -> Response:
        """`GET /fleetlight/subscriptions/{id}`"""
        return json_answer(_shown(await self._access.ask(partial(self._find, request)), request.caller))

    async def remove(self, request: ApiRequest) -> Response:
        """`DELETE /fleetlight/subscriptions/{id}`"""
        await self._on_one(request, lambda found: self._store.remove(found.id))
        return empty_answer(204)

    async def pause(self, request: ApiRequest) -> Response:
        """`POST /fleetlight/subscriptions/{id}/pause`"""
        return await self._change(request, SubscriptionState.PAUSED)

    async def resume(self, request: ApiRequest) -> Response:
        """`POST /fleetlight/subscriptions/{id}/resume`"""
        return await self._change(request, SubscriptionState.ACTIVE)

    async def test(self, request: ApiRequest) -> Response:
        """`POST /fleetlight/subscriptions/{id}/test`"""

        def order(found: Subscription) -> str:
            if found.state is not SubscriptionState.ACTIVE:
                raise ConflictError(f"Subscription {found.id} is {found.state}: nothing is delivered. Resume it first.")
            test = new_test(found.id, self._clock())
            self._store.add_failure(test)
            return test.id

        return json_answer({"id": await self._on_one(request, order)}, 202)

    async def failures(self, request: ApiRequest) -> Response:
        """`GET /fleetlight/subscriptions/{id}/failures`. Raises ForbiddenError."""
        marker = request.query.last("marker")
        limit = min(number_in("limit", request.query) or _MOST, _MOST)

        def page(found: Subscription) -> list[FailedDelivery]:
            _require_roles(found, request.caller)
            after = None if marker is None else self._store.failure(found.id, marker)
            if marker is not None and after is None:
                raise ParameterError("marker", marker, "There is no such failure (any more): list again.")
            return self._store.failures(found.id, after, limit + 1)

        failures = await self._on_one(request, page)
        has_more = len(failures) > limit
        said = [_failure(each) for each in failures[:limit]]
        return json_answer({"failures": said, "marker": said[-1]["id"] if has_more else None})

    async def replay(self, request: ApiRequest) -> Response:
        """`POST /fleetlight/subscriptions/{id}/failures/replay`"""
        body = await _CHOSEN.read(request)
        count = await self._on_one(request, lambda found: self._store.want(found.id, body.ids))
        return json_answer({"count": count}, 202)

    async def skip(self, request: ApiRequest) -> Response:
        """`POST /fleetlight/subscriptions/{id}/failures/skip`"""
        body = await _CHOSEN.read(request)
        return json_answer({"count": await self._on_one(request, lambda found: self._store.drop(found.id, body.ids))})

    async def _change(self, request: ApiRequest, state: SubscriptionState) -> Response:
        def change(found: Subscription) -> Subscription:
            if not self._store.change_state(found.id, state, None):
                raise ConflictError(f"Subscription {found.id} has ended: {found.reason}. Make another one.")
            return self._store.find(found.id)

        return json_answer(_shown(await self._on_one(request, change), request.caller))

    async def _on_one(self, request: ApiRequest, act: Callable[[Subscription], T]) -> T:
        return await self._access.ask(lambda: act(self._find(request)))

    def _all_of(self, caller: Caller) -> list[Subscription]:
        found = self._store.all() if caller.is_admin else self._store.seen_by(caller.user_id, caller.project_id)
        self._confirm(caller, *found)
        return found

    def _find(self, request: ApiRequest) -> Subscription:
        """Find the subscription in the address. Raises ResourceNotFoundError if the caller does not see it."""
        wanted, caller = request.http.path_params["id"], request.caller
        found = self._store.find(wanted)
        if not (_is_own(found, caller) or caller.is_admin):
            raise ResourceNotFoundError("Subscription", wanted)
        self._confirm(caller, found)
        return found

    def _confirm(self, caller: Caller, *found: Subscription) -> None:
        """Confirm the rights of the caller's subscriptions, which they need where no process can look rights up."""
        old = self._clock() - _CONFIRMED_FOR_US
        roles = with_implied(caller.roles)
        own = [each.id for each in found if _is_own(each, caller) and roles >= set(each.content.roles)]
        if own and any(each.confirmed_at < old for each in found if each.id in own):
            self._store.confirm(own, self._clock())


def checked(body: SubscriptionBody, caller: Caller, rules: TargetRules) -> tuple[SubscriptionContent, SecretStr]:
    """Check a body, except for its query; returns its content, and its target's secret. Raises BadRequestError."""
    target, secret = _target_of(body, rules)
    content = SubscriptionContent(
        user_id=caller.user_id,
        project_id=caller.project_id,
        roles=sorted(caller.roles),
        name=body.name,
        what=body.what,
        filter=body.filter,
        fields=body.fields,
        all_projects=body.all_projects,
        target=target,
    )
    return content, secret


def _target_of(body: SubscriptionBody, rules: TargetRules) -> tuple[str, SecretStr]:
    """Return the shown URL, and the secret: a broker's password, or a webhook's key, new if none is given.

    Raises BadRequestError for a target that the rules forbid.
    """
    url = body.url.get_secret_value()
    rules.check_url(url)
    if is_broker(url):
        if body.secret is not None:
            raise BadRequestError(
                "secret: a broker has none, since messages are not signed; its password is in the url"
            )
        return without_password(url)
    if body.secret is not None:
        check_key(body.secret)
    return url, body.secret or new_key()


def key_of(content: SubscriptionContent, secret: SecretStr) -> str | None:
    """Return the key of a webhook, for the only answer that shows it; None for a broker's password."""
    return None if is_broker(content.target) else secret.get_secret_value()


def new_key() -> SecretStr:
    """Make a key that signs webhooks, in the form of Standard Webhooks."""
    return SecretStr(SECRET_PREFIX + b64encode(secrets.token_bytes(_KEY_BYTES)).decode())


def new_test(subscription_id: str, now: int) -> FailedDelivery:
    """Make a test event for a deliverer."""
    event = other_event(subscription_id, "test")
    return FailedDelivery(
        str(uuid4()), subscription_id, event.id, event.type, None, event.body, "not delivered yet", 0, now, True
    )


def _is_own(subscription: Subscription, caller: Caller) -> bool:
    content = subscription.content
    return (content.user_id, content.project_id) == (caller.user_id, caller.project_id)


def _require_roles(subscription: Subscription, caller: Caller) -> None:
    """Raise ForbiddenError if the caller lacks the roles with which the subscription was made, which events show."""
    if not (caller.is_admin or with_implied(caller.roles) >= set(subscription.content.roles)):
        raise ForbiddenError("fleetlight:subscriptions:failures")


def _shown(subscription: Subscription, caller: Caller) -> dict[str, Any]:
    content, delivery, mine = subscription.content, subscription.delivery, _is_own(subscription, caller)
    parts = urlsplit(content.target)
    return {
        "id": subscription.id,
        **{name: getattr(content, name) for name in ("name", "what", "filter", "fields", "all_projects")},
        # The path of a webhook may be a secret.
        "target": content.target if mine else f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}",
        "state": subscription.state.value,
        "reason": subscription.reason,
        "owner": content.user_id,
        "project": content.project_id,
        "mine": mine,
        "created_at": with_zone(subscription.created_at),
        "complete": delivery.is_complete,
        "delivered": delivery.delivered,
        "delivered_at": time_shown(delivery.delivered_at),
        "failing_since": time_shown(delivery.failing_since),
        "last_error": delivery.last_error,
        "failures": subscription.failures,
    }


def _failure(failure: FailedDelivery) -> Mapping[str, Any]:
    return {
        "id": failure.id,
        "event": failure.event_id,
        "type": failure.type,
        "subject": failure.subject,
        "reason": failure.reason,
        "times": failure.times,
        "failed_at": with_zone(failure.failed_at),
        "waiting": failure.is_wanted,
        "body": failure.body,
    }

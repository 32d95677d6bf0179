"""Subscriptions: saved queries whose changes are delivered to a target (docs/decisions/0038).

A subscription belongs to a user in a project, with the roles that the user had when creating it, or to the operator.
Secrets are in a table of their own, which only accounts of deliverers may read.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any
from uuid import uuid4

from pydantic import SecretStr
from sqlalchemy import ColumnElement, Row, and_, delete, func, insert, null, or_, select, true, update

from fleetlight.cells.database.locks import wait_for_lock
from fleetlight.cells.epochs import Position
from fleetlight.cells.errors import QuotaExceededError, ResourceNotFoundError
from fleetlight.cells.fleet.database import FleetDatabase
from fleetlight.cells.fleet.failures import storable
from fleetlight.cells.fleet.tables import (
    subscription_failures,
    subscription_positions,
    subscription_secrets,
    subscriptions,
)

MAX_OF_USER = 20
MAX_FAILURES = 1000
"""The most refused events that a subscription keeps; with more it is suspended."""


class SubscriptionState(StrEnum):
    """States of a subscription. PAUSED: by its owner or an administrator. SUSPENDED: by a deliverer, until it is
    resumed. ENDED: for ever, since its owner lost rights, or the target refuses it.
    """

    ACTIVE = "active"
    PAUSED = "paused"
    SUSPENDED = "suspended"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class SubscriptionContent:
    """The request of the owner. user_id: None for the operator, who has no project. roles: of the owner at creation.

    what, filter, fields: of the query; the filter is a text, empty for none. target: the URL of a webhook, or of a
    broker without its password.
    """

    user_id: str | None
    project_id: str | None
    roles: Sequence[str]
    name: str
    what: str
    filter: str
    fields: Sequence[str]
    all_projects: bool
    target: str


@dataclass(frozen=True, slots=True)
class DeliveryState:
    """The progress of a subscription. is_complete: as last told to its target; None if it was told nothing yet.

    delivered: number of events. delivered_at, failing_since: microseconds; the latter is the first failed attempt since
    a successful one.
    """

    is_complete: bool | None = None
    delivered: int = 0
    delivered_at: int | None = None
    failing_since: int | None = None
    last_error: str | None = None


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription. confirmed_at: when its owner last requested it with the same rights, in microseconds.

    reason: of the state. failures: number of refused events that are kept.
    """

    id: str
    content: SubscriptionContent
    created_at: int
    confirmed_at: int
    state: SubscriptionState
    reason: str | None
    delivery: DeliveryState
    failures: int


@dataclass(frozen=True, slots=True)
class FailedDelivery:
    """An event that the target of a subscription refused. id: of this record. event_id, type, subject: of the event.

    body: as sent. times: number of attempts. is_wanted: a deliverer shall deliver it (again).
    """

    id: str
    subscription_id: str
    event_id: str
    type: str
    subject: str | None
    body: str
    reason: str
    times: int
    failed_at: int
    is_wanted: bool = False


_OWN, _FAILED = subscriptions.c, subscription_failures.c
_CONTENT = SubscriptionContent.__dataclass_fields__
_DELIVERY = DeliveryState.__dataclass_fields__


class Subscriptions:
    """All subscriptions. Calls block, and raise FleetUnreachableError. now: microseconds."""

    def __init__(self, database: FleetDatabase) -> None:
        self._database = database

    def add(self, content: SubscriptionContent, secret: SecretStr, now: int) -> Subscription:
        """Add a subscription. secret: see `secret`. Raises QuotaExceededError if a user has more than MAX_OF_USER."""
        values = {"id": str(uuid4()), **asdict(content), "created_at": now, "confirmed_at": now, "delivered": 0}
        with self._database.writing() as connection:
            wait_for_lock(connection, f"subscriptions of user {content.user_id}")
            own = select(func.count()).where(_OWN.user_id == content.user_id)
            count = connection.scalar(own) or 0
            if content.user_id is not None and count >= MAX_OF_USER:
                raise QuotaExceededError("subscriptions", requested=1, in_use=count, limit=MAX_OF_USER)
            connection.execute(insert(subscriptions).values(values | {"state": SubscriptionState.ACTIVE.value}))
            keeping = insert(subscription_secrets).values(subscription_id=values["id"])
            connection.execute(keeping.values(secret=secret.get_secret_value()))
        return self.find(str(values["id"]))

    def all(self) -> list[Subscription]:
        """All subscriptions, oldest first."""
        return self._select(true())

    def seen_by(self, user_id: str, project_id: str | None) -> list[Subscription]:
        """The subscriptions that a user created in a project."""
        return self._select(and_(_OWN.user_id == user_id, _OWN.project_id.is_not_distinct_from(project_id)))

    def find(self, subscription_id: str) -> Subscription:
        """The subscription with this id. Raises ResourceNotFoundError."""
        found = self._select(_OWN.id == subscription_id)
        if not found:
            raise ResourceNotFoundError("Subscription", subscription_id)
        return found[0]

    def confirm(self, ids: Iterable[str], now: int) -> None:
        """Note that their owner made a request with the rights that these subscriptions have."""
        with self._database.writing_once() as connection:
            connection.execute(update(subscriptions).where(_OWN.id.in_(list(ids))).values(confirmed_at=now))

    def change_state(self, subscription_id: str, state: SubscriptionState, reason: str | None) -> bool:
        """Set the state, and forget earlier failures when it becomes active; False if it has ended, or is removed."""
        values: dict[str, object] = {"state": state.value, "reason": None if reason is None else storable(reason)}
        if state is SubscriptionState.ACTIVE:
            values |= {"failing_since": null(), "last_error": null()}
        its = and_(_OWN.id == subscription_id, _OWN.state != SubscriptionState.ENDED.value)
        with self._database.writing_once() as connection:
            return connection.execute(update(subscriptions).where(its).values(**values)).rowcount > 0

    def remove(self, subscription_id: str) -> None:
        """Remove a subscription, if it exists, with its positions, secret and failures."""
        with self._database.writing_once() as connection:
            connection.execute(delete(subscriptions).where(_OWN.id == subscription_id))

    def secret(self, subscription_id: str) -> SecretStr:
        """The key that signs its events, or the password of its broker. Raises ResourceNotFoundError."""
        columns = subscription_secrets.c
        with self._database.reading() as connection:
            found = connection.scalar(select(columns.secret).where(columns.subscription_id == subscription_id))
        if found is None:
            raise ResourceNotFoundError("Secret of subscription", subscription_id)
        return SecretStr(found)

    def positions(self, subscription_id: str) -> Mapping[str, Position]:
        """The position up to which everything was delivered, by cell; empty before the first delivery."""
        columns = subscription_positions.c
        with self._database.reading() as connection:
            rows = connection.execute(
                select(columns.cell_uuid, columns.epoch, columns.sequence).where(
                    columns.subscription_id == subscription_id
                )
            )
            return {row.cell_uuid: Position(row.epoch, row.sequence) for row in rows}

    def save(self, subscription_id: str, positions: Mapping[str, Position] | None, delivery: DeliveryState) -> None:
        """Save the progress, if the subscription exists. positions: None if they have not changed."""
        its = subscription_positions.c.subscription_id == subscription_id
        rows = [
            {
                "subscription_id": subscription_id,
                "cell_uuid": uuid,
                "epoch": position.epoch,
                "sequence": position.sequence,
            }
            for uuid, position in (positions or {}).items()
        ]
        with self._database.writing() as connection:
            changed = update(subscriptions).where(_OWN.id == subscription_id).values(**asdict(delivery))
            if not connection.execute(changed).rowcount or positions is None:
                return
            connection.execute(delete(subscription_positions).where(its))
            if rows:
                connection.execute(insert(subscription_positions), rows)

    def add_failure(self, failure: FailedDelivery) -> int:
        """Store a refused event, replacing the record with the same id; returns the number of records."""
        values = asdict(failure) | {"reason": storable(failure.reason)}
        of_same = _FAILED.subscription_id == failure.subscription_id
        with self._database.writing() as connection:
            connection.execute(delete(subscription_failures).where(_FAILED.id == failure.id))
            connection.execute(insert(subscription_failures).values(values))
            return connection.scalar(select(func.count()).where(of_same)) or 0

    def failures(self, subscription_id: str, after: FailedDelivery | None, limit: int) -> list[FailedDelivery]:
        """At most `limit` refused events after `after`, oldest first."""
        its = _FAILED.subscription_id == subscription_id
        if after is not None:
            same = and_(_FAILED.failed_at == after.failed_at, _FAILED.id > after.id)
            its = and_(its, or_(_FAILED.failed_at > after.failed_at, same))
        return self._failures(its, limit)

    def failure(self, subscription_id: str, failure_id: str) -> FailedDelivery | None:
        """One refused event; None if it does not exist."""
        found = self._failures(and_(_FAILED.subscription_id == subscription_id, _FAILED.id == failure_id), 1)
        return found[0] if found else None

    def wanted(self) -> list[FailedDelivery]:
        """The refused events of active subscriptions that a deliverer shall deliver now, oldest first."""
        active = select(_OWN.id).where(_OWN.state == SubscriptionState.ACTIVE.value)
        return self._failures(and_(_FAILED.is_wanted, _FAILED.subscription_id.in_(active)), MAX_FAILURES)

    def want(self, subscription_id: str, ids: Sequence[str] | None) -> int:
        """Request another delivery of these refused events, or of all; returns their number."""
        changed = update(subscription_failures).where(_chosen(subscription_id, ids)).values(is_wanted=True)
        with self._database.writing_once() as connection:
            return connection.execute(changed).rowcount

    def drop(self, subscription_id: str, ids: Sequence[str] | None) -> int:
        """Remove these refused events, or all; returns their number."""
        with self._database.writing_once() as connection:
            return connection.execute(delete(subscription_failures).where(_chosen(subscription_id, ids))).rowcount

    def _failures(self, condition: ColumnElement[bool], limit: int) -> list[FailedDelivery]:
        statement = select(subscription_failures).where(condition).order_by(_FAILED.failed_at, _FAILED.id).limit(limit)
        with self._database.reading() as connection:
            return [FailedDelivery(**row._mapping) for row in connection.execute(statement)]

    def _select(self, condition: ColumnElement[bool]) -> list[Subscription]:
        counted = select(func.count()).where(_FAILED.subscription_id == _OWN.id).scalar_subquery()
        statement = select(subscriptions, counted.label("failures")).where(condition)
        with self._database.reading() as connection:
            return [_subscription(row) for row in connection.execute(statement.order_by(_OWN.created_at, _OWN.id))]


def _chosen(subscription_id: str, ids: Sequence[str] | None) -> ColumnElement[bool]:
    chosen = true() if ids is None else _FAILED.id.in_(ids)
    return and_(_FAILED.subscription_id == subscription_id, chosen)


def _subscription(row: Row[Any]) -> Subscription:
    values = row._mapping
    return Subscription(
        values["id"],
        SubscriptionContent(**{name: values[name] for name in _CONTENT}),
        values["created_at"],
        values["confirmed_at"],
        SubscriptionState(values["state"]),
        values["reason"],
        DeliveryState(**{name: values[name] for name in _DELIVERY}),
        values["failures"],
    )

"""`fleetlight subscribe`: makes, shows and changes subscriptions as the operator."""

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any

import typer

from fleetlight.api.caller import Caller
from fleetlight.api.http.errors import BadRequestError, NotFoundError
from fleetlight.api.subscriptions.handlers import NEW_SUBSCRIPTION, checked, key_of, new_test
from fleetlight.api.subscriptions.questions import OPERATOR, OPERATOR_ROLES, question_of
from fleetlight.api.subscriptions.targets import TargetRules
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.fleet.subscriptions import (
    MAX_FAILURES,
    FailedDelivery,
    Subscription,
    SubscriptionContent,
    SubscriptionState,
)
from fleetlight.cells.model import Cell
from fleetlight.cli.errors import CommandError, ConfigurationError
from fleetlight.cli.fleet import LoadedSettings, OpenFleet
from fleetlight.cli.options import Output, OutputOption, examples
from fleetlight.cli.output import counted, print_notice, print_result, print_rows
from fleetlight.resources.fields import from_microseconds

_ID = "6f1c0b6a-1f3e-4a7e-9a55-1de2f0c2a9b4"

app = typer.Typer(
    no_args_is_help=True,
    help="Subscriptions: saved queries whose changes are delivered to a webhook or a broker.",
    epilog=examples("fleetlight subscribe list", f"fleetlight subscribe show {_ID}"),
)

_POLL_INTERVAL_S = 0.2
IdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The id of the subscription, from `list`.", show_default=False)
]
FailureArguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="EVENT...", help="The ids of events, from `failures`.", show_default=False),
]
AllOption = Annotated[bool, typer.Option("--all", help="All events that the target refused.")]


@app.command(
    epilog=examples(
        "fleetlight subscribe add billing --url https://billing.example.org/events --fields name,status",
        "fleetlight subscribe add web --url https://web.example.org/hook --filter 'name =~ m/^web/' --project demo",
        "fleetlight subscribe add audit --url 'amqps://ada:…@broker.example.org/vhost?exchange=fleetlight.events'",
    )
)
def add(
    name: Annotated[str, typer.Argument(help="A name for people.", show_default=False)],
    *,
    url: Annotated[
        str,
        typer.Option(
            envvar="FLEETLIGHT_SUBSCRIPTION_URL",
            metavar="URL",
            help="URL of the webhook, or of broker and exchange; best set in the environment if it has a password.",
            show_default=False,
        ),
    ],
    filter_text: Annotated[
        str, typer.Option("--filter", metavar="TEXT", help="Filter of instances; all by default.")
    ] = "",
    fields: Annotated[str, typer.Option(metavar="NAMES", help="Comma-separated fields of events.")] = "",
    project: Annotated[
        str | None, typer.Option(metavar="ID", help="Only instances of this project; of all by default.")
    ] = None,
    settings: LoadedSettings,
    fleet: OpenFleet,
) -> None:
    """Create a subscription of the operator, which does not end with a user, and show the key of its webhook, once."""
    document = {
        "name": name,
        "url": url,
        "filter": filter_text,
        "fields": [each for each in fields.split(",") if each],
        "all_projects": project is None,
    }
    try:
        body = NEW_SUBSCRIPTION.check(document, 1)
        asked, secret = checked(
            body, Caller(OPERATOR, project, frozenset(OPERATOR_ROLES)), TargetRules(settings.delivery)
        )
        content = replace(asked, user_id=None)
    except BadRequestError as error:
        raise ConfigurationError(str(error)) from error
    _check_question(content, fleet.cells())
    fleet.clock.look()
    made = fleet.subscriptions.add(content, secret, fleet.clock())
    print_result(f"id: {made.id}")
    if (key := key_of(content, secret)) is not None:
        print_result(f"key: {key}")
        print_notice("the key is not shown again; the receiver checks signatures with it")


@app.command("list", epilog=examples("fleetlight subscribe list", "fleetlight subscribe list --output json"))
def list_subscriptions(fleet: OpenFleet, output: OutputOption = Output.TABLE) -> None:
    """List all subscriptions of the fleet, and their states."""
    found = fleet.subscriptions.all()
    if not found and output is Output.TABLE:
        print_notice("there are no subscriptions")
        return
    rows = [
        [
            each.id,
            each.content.name,
            each.content.user_id or OPERATOR,
            _state(each),
            str(each.failures),
            each.content.target,
        ]
        for each in found
    ]
    columns = ("ID", "NAME", "OWNER", "STATE", "FAILURES", "TARGET")
    print_rows(output, [_document(each) for each in found], columns, rows, right_aligned=("FAILURES",))


@app.command(epilog=examples(f"fleetlight subscribe show {_ID}"))
def show(subscription_id: IdArgument, fleet: OpenFleet, output: OutputOption = Output.TABLE) -> None:
    """Show one subscription, its deliveries, and why the last attempt failed."""
    document = _document(fleet.subscriptions.find(subscription_id))
    rows = [[name, _text(value)] for name, value in document.items()]
    print_rows(output, document, ("FIELD", "VALUE"), rows)


@app.command(epilog=examples(f"fleetlight subscribe pause {_ID}"))
def pause(subscription_id: IdArgument, fleet: OpenFleet) -> None:
    """Deliver nothing until the subscription is resumed, then also what changed meanwhile."""
    _change(fleet, subscription_id, SubscriptionState.PAUSED)


@app.command(epilog=examples(f"fleetlight subscribe resume {_ID}"))
def resume(subscription_id: IdArgument, fleet: OpenFleet) -> None:
    """Continue deliveries where they stopped, also after the subscription was suspended."""
    _change(fleet, subscription_id, SubscriptionState.ACTIVE)


@app.command(epilog=examples(f"fleetlight subscribe remove {_ID}"))
def remove(subscription_id: IdArgument, fleet: OpenFleet) -> None:
    """Remove a subscription of any user, with the events that its target refused."""
    fleet.subscriptions.remove(fleet.subscriptions.find(subscription_id).id)
    print_result(f"{subscription_id}: removed")


@app.command(epilog=examples(f"fleetlight subscribe failures {_ID}"))
def failures(subscription_id: IdArgument, fleet: OpenFleet, output: OutputOption = Output.TABLE) -> None:
    """List the events that the target refused, and that are neither replayed nor skipped yet."""
    found = fleet.subscriptions.failures(fleet.subscriptions.find(subscription_id).id, None, MAX_FAILURES)
    if not found and output is Output.TABLE:
        print_notice("no event was refused")
        return
    rows = [[each.id, each.type, each.subject or "-", str(each.times), each.reason] for each in found]
    columns = ("ID", "TYPE", "SUBJECT", "TIMES", "REASON")
    print_rows(output, [asdict(each) for each in found], columns, rows, right_aligned=("TIMES",))


@app.command(epilog=examples(f"fleetlight subscribe replay {_ID} --all"))
def replay(
    subscription_id: IdArgument, ids: FailureArguments = None, *, every: AllOption = False, fleet: OpenFleet
) -> None:
    """Deliver refused events again."""
    count = fleet.subscriptions.want(fleet.subscriptions.find(subscription_id).id, _chosen(ids, every))
    print_result(f"{counted(count, 'event')} to deliver again")


@app.command(epilog=examples(f"fleetlight subscribe skip {_ID} --all"))
def skip(
    subscription_id: IdArgument, ids: FailureArguments = None, *, every: AllOption = False, fleet: OpenFleet
) -> None:
    """Forget refused events: the target never gets them."""
    count = fleet.subscriptions.drop(fleet.subscriptions.find(subscription_id).id, _chosen(ids, every))
    print_result(f"{counted(count, 'event')} skipped")


@app.command("test", epilog=examples(f"fleetlight subscribe test {_ID}"))
def deliver_test(
    subscription_id: IdArgument,
    *,
    wait: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="How long to wait for the result.")] = 30.0,
    fleet: OpenFleet,
) -> None:
    """Deliver a meaningless test event, and report the result. Exit code 1 unless the target accepts it."""
    found = fleet.subscriptions.find(subscription_id)
    if found.state is not SubscriptionState.ACTIVE:
        raise CommandError(f"it is {found.state}, and nothing is delivered: resume it first")
    fleet.clock.look()
    ordered = new_test(found.id, fleet.clock())
    fleet.subscriptions.add_failure(ordered)
    left = _outcome(fleet, ordered, time.monotonic() + wait)
    if left is not None:
        fleet.subscriptions.drop(found.id, [left.id])
    if left is not None and left.is_wanted:
        raise CommandError(f"no deliverer has tried it within {wait:g} s: does `fleetlight deliverer` run?")
    if left is not None:
        raise CommandError(f"its target did not take the event: {left.reason}")
    print_result("delivered")


def _outcome(fleet: Fleet, ordered: FailedDelivery, deadline: float) -> FailedDelivery | None:
    """The remaining record of a test event; None once it was delivered."""
    while True:
        left = fleet.subscriptions.failure(ordered.subscription_id, ordered.id)
        if left is None or not left.is_wanted or time.monotonic() >= deadline:
            return left
        time.sleep(_POLL_INTERVAL_S)


def _change(fleet: Fleet, subscription_id: str, state: SubscriptionState) -> None:
    found = fleet.subscriptions.find(subscription_id)
    if not fleet.subscriptions.change_state(found.id, state, None):
        raise CommandError(f"it has ended: {found.reason}; make another one")
    print_result(f"{subscription_id}: {state}")


def _check_question(content: SubscriptionContent, cells: Sequence[Cell]) -> None:
    """Check the query of a subscription. Raises ConfigurationError, QueryError."""
    try:
        question_of(content, cells)
    except (BadRequestError, NotFoundError) as error:
        raise ConfigurationError(str(error)) from error


def _chosen(ids: Sequence[str] | None, every: bool) -> Sequence[str] | None:
    """The ids of the chosen events, None for all. Raises ConfigurationError."""
    if bool(ids) == every:
        raise ConfigurationError("name events by their ids, or all of them with --all")
    return ids or None


def _state(subscription: Subscription) -> str:
    is_failing = subscription.delivery.failing_since is not None
    return "failing" if subscription.state is SubscriptionState.ACTIVE and is_failing else subscription.state.value


def _document(subscription: Subscription) -> dict[str, Any]:
    content, delivery = subscription.content, subscription.delivery
    return {
        "id": subscription.id,
        **{field: value for field, value in asdict(content).items() if field not in {"user_id", "roles"}},
        "owner": content.user_id or OPERATOR,
        "state": _state(subscription),
        "reason": subscription.reason,
        "created_at": _time(subscription.created_at),
        **asdict(delivery),
        "delivered_at": _time(delivery.delivered_at),
        "failing_since": _time(delivery.failing_since),
        "failures": subscription.failures,
    }


def _text(value: object) -> str:
    text = ",".join(value) if isinstance(value, list) else str(value)
    return "-" if value is None or not text else text


def _time(moment: int | None) -> str | None:
    return None if moment is None else from_microseconds(moment).isoformat(timespec="seconds")

"""A producer that tests announce as."""

from fleetlight.bus.bus import Message
from fleetlight.bus.signatures import ProducerKey, SigningKey, signed_by_producer
from fleetlight.bus.topology import routing_key
from fleetlight.cells.fleet.failures import Failure
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.model import Cell
from fleetlight.indexer.errors import DeadLetterReason
from fleetlight.indexer.writing.dead_letters import DeadLetter, to_failure
from fleetlight.resources.clock import system_clock
from tests.support.played.newer_messages import newer_message

PRODUCER_KEY = ProducerKey("rack-agent", SigningKey("0123abcd", bytes(range(32))))


def let_announce(fleet: Fleet, cell: Cell, key: ProducerKey = PRODUCER_KEY) -> None:
    """The cell takes announcements from the producer from now on."""
    fleet.set_takes_announcements(cell.uuid, True)
    now = system_clock()
    fleet.producer_keys.accept(key, [cell.uuid], now=now, accepted_until=now)


def announcement(message: Message, cell_uuid: str, key: ProducerKey = PRODUCER_KEY) -> Message:
    """The same notification as the producer sends it: without numbers, and signed."""
    return signed_by_producer(Message(message.body, message.routing_key, {}), cell_uuid, key)


def refused_announcement(cell: Cell) -> Failure:
    """What an indexer makes of an announcement whose producer the cell does not know; only it has that instance."""
    message = announcement(Message(newer_message({}), routing_key("INFO"), {}), cell.uuid)
    letter = DeadLetter(message, DeadLetterReason.REFUSED, "its producer is not known")
    return to_failure(cell.uuid, letter, system_clock())

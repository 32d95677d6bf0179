import json
from collections.abc import Iterator
from dataclasses import replace
from uuid import uuid4

import pytest

from fleetlight.bus.bus import Receiver
from fleetlight.bus.producer import Producer
from fleetlight.bus.signatures import ProducerKey, is_signed
from fleetlight.bus.topology import CELL_HEADER, PRODUCER_HEADER
from fleetlight.notifications.check import find_problems
from fleetlight.notifications.envelope import LARGEST_BODY_BYTES, decode
from fleetlight.notifications.errors import EnvelopeError, PayloadError, ProducerKeyError, UnknownPayloadError
from fleetlight.notifications.event_types import INSTANCE_CREATE_END
from fleetlight.notifications.payloads.parts import ExceptionPayload
from tests.contract.payload_samples import instance_payload, samples
from tests.support.played.producers import PRODUCER_KEY

CELL = str(uuid4())


@pytest.fixture
def producer() -> Iterator[Producer]:
    producer = Producer("memory://", CELL, PRODUCER_KEY, publisher_id="nova-compute:host7")
    yield producer
    producer.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver("memory://", CELL, prefetch=10)
    yield receiver
    receiver.ack(receiver.receive(10, 10**6, 0.01))
    receiver.close()


def test_notification_that_nobody_would_read_is_not_sent(producer: Producer, receiver: Receiver) -> None:
    large = ExceptionPayload(
        module_name="agent.disks",
        function_name="attach",
        exception="DiskNotFound",
        exception_message="there is no disk 4",
        traceback="x" * LARGEST_BODY_BYTES,
    )
    with pytest.raises(EnvelopeError, match=r"message: is of \d+ bytes, and more than 16777216 are"):
        producer.emit("compute.exception", large)
    assert receiver.receive(1, 10**9, 0.05) == []


def test_emitted_notification_is_valid_and_arrives(producer: Producer, receiver: Receiver) -> None:
    sent = producer.emit("instance.update", instance_payload(), request_id="req-1")
    assert find_problems(sent) == []
    (delivery,) = receiver.receive(1, 10**6, 1)
    assert decode(delivery.body) == sent
    assert delivery.routing_key == "versioned_notifications.info"
    assert delivery.headers[CELL_HEADER] == CELL
    assert delivery.headers[PRODUCER_HEADER] == "rack-agent"
    assert is_signed(delivery.headers, delivery.body, PRODUCER_KEY.key)
    receiver.ack([delivery])


def test_wrapped_payload_is_taken_as_well(producer: Producer, receiver: Receiver) -> None:
    sent = producer.emit("instance.update", instance_payload().wrap())
    (delivery,) = receiver.receive(1, 10**6, 1)
    assert decode(delivery.body).payload == sent.payload
    receiver.ack([delivery])


def test_error_phase_has_error_priority(producer: Producer, receiver: Receiver) -> None:
    fault = ExceptionPayload(module_name="a", function_name="b", exception="C", exception_message="d", traceback="e")
    producer.emit("compute.exception", fault, priority="ERROR")
    producer.emit("instance.reboot.error", instance_payload())
    deliveries = receiver.receive(2, 10**6, 1)
    assert [delivery.routing_key for delivery in deliveries] == ["versioned_notifications.error"] * 2
    receiver.ack(deliveries)


def test_invalid_payload_fails_with_the_field_before_anything_is_sent(producer: Producer, receiver: Receiver) -> None:
    wrapped = instance_payload().wrap()
    del wrapped["nova_object.data"]["display_name"]
    with pytest.raises(PayloadError) as refused:
        producer.emit("instance.update", wrapped)
    assert refused.value.field == "display_name"
    assert receiver.receive(10, 10**6, 0.05) == []


def test_payload_of_another_event_is_refused(producer: Producer) -> None:
    with pytest.raises(EnvelopeError, match=r"service\.update carries nova ServiceStatusPayload"):
        producer.emit("service.update", instance_payload())


def test_unknown_payload_is_refused(producer: Producer) -> None:
    with pytest.raises(UnknownPayloadError):
        producer.emit("instance.update", json.loads(json.dumps(instance_payload().wrap()).replace("fleetlight", "f")))


def test_publisher_id_without_host_is_refused() -> None:
    producer = Producer("memory://", CELL, PRODUCER_KEY, publisher_id="nova-compute")
    with pytest.raises(EnvelopeError, match="publisher_id: must be service:host"):
        producer.emit("instance.update", instance_payload())


def test_one_invalid_notification_stops_the_whole_batch(producer: Producer, receiver: Receiver) -> None:
    good = samples()[INSTANCE_CREATE_END]
    with pytest.raises(EnvelopeError, match="priority"):
        producer.send([good, replace(good, priority="LOUD")])
    assert receiver.receive(10, 10**6, 0.05) == []


@pytest.mark.parametrize("event_type", ["instance.frobnicate", "instance.updated", "flavor.creat"])
def test_event_type_that_no_payload_of_its_kind_has_is_refused(
    producer: Producer, receiver: Receiver, event_type: str
) -> None:
    with pytest.raises(EnvelopeError, match=f"event_type: '{event_type}' is not known to carry fleetlight Instance"):
        producer.emit(event_type, instance_payload())
    assert receiver.receive(10, 10**6, 0.05) == []


def test_key_of_a_producer_is_shown_only_by_its_text_and_read_from_it() -> None:
    assert ProducerKey.read(f"{PRODUCER_KEY.reveal()}\n") == PRODUCER_KEY
    secret = PRODUCER_KEY.reveal().rpartition(":")[2]
    for shown in (
        repr(PRODUCER_KEY),
        str(PRODUCER_KEY),
        f"{PRODUCER_KEY}",
        repr(PRODUCER_KEY.key),
        repr({1: PRODUCER_KEY}),
    ):
        assert secret not in shown
        assert "rack-agent" in shown or PRODUCER_KEY.key.id in shown


@pytest.mark.parametrize("text", ["", "rack-agent", "rack-agent:0123abcd:c2hvcnQ=", "a b:0123abcd:", "x:1:2:3", "ä"])
def test_text_that_is_no_key_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(ProducerKeyError) as refused:
        ProducerKey.read(text)
    assert not text or text not in str(refused.value)

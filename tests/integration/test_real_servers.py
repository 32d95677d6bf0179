"""The fixtures that give each test its own place on a real server keep tests apart."""

from collections.abc import Callable

import kombu
import sqlalchemy as sa

from fleetlight.bus import topology
from tests.support.servers.index_server import index_client


def test_postgresql_databases_of_one_test_are_apart(new_postgresql_database: Callable[[], str]) -> None:
    names = set()
    for url in (new_postgresql_database(), new_postgresql_database()):
        engine = sa.create_engine(url)
        with engine.begin() as connection:
            connection.execute(sa.text("CREATE TABLE only_here (id int)"))
            names.add(connection.execute(sa.text("SELECT current_database()")).scalar_one())
        engine.dispose()
    assert len(names) == 2


def test_elasticsearch_is_version_nine_and_takes_documents(elasticsearch_url: str, elasticsearch_prefix: str) -> None:
    index = f"{elasticsearch_prefix}things"
    with index_client(elasticsearch_url) as client:
        assert client.info()["version"]["number"].startswith("9.")
        client.index(index=index, id="1", document={"name": "a"}, refresh=True)
        assert client.count(index=index)["count"] == 1


def test_message_goes_through_the_quorum_queue_of_a_cell(amqp_url: str, amqp_cell: str) -> None:
    with kombu.Connection(amqp_url) as connection, connection.channel() as channel:
        topology.declare(channel, amqp_cell, has_quorum_queues=True)
        queue = topology.work_queue(amqp_cell, has_quorum_queues=True)
        kombu.Producer(channel, queue.exchange).publish({"a": 1}, routing_key=topology.routing_key("INFO"))
        received: list[object] = []
        with kombu.Consumer(channel, [queue], callbacks=[lambda body, message: received.append((body, message.ack()))]):
            connection.drain_events(timeout=10)
    assert received == [({"a": 1}, None)]

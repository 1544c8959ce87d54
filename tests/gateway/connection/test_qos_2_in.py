"""QoS 2 from clients: each message is stored once, and no step is answered before it is durable."""

from pathlib import Path

from tests.gateway.connection.test_custody import commits_held_up
from tests.gateway.steps import session_of, started
from tests.gateway.store.support import disk_full, messages_in, stored
from tests.gateway.support import Client, running, subscribed, tcp_port, until
from wire.codec.packets import Connack, Disconnect, Pubcomp, Pubrec


async def test_no_pubrec_leaves_before_message_and_identifier_are_durable(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await Client().connect(tcp_port(broker))
        with commits_held_up(tmp_path):
            client.send("a", b"1", qos=2)
            await client.ping()
            assert messages_in(tmp_path) == []
        pubrec = await client.expect(Pubrec)
        assert [message.payload for _, message in messages_in(tmp_path)] == [b"1"]
        assert stored(tmp_path, "SELECT * FROM incoming") == [("client", pubrec.packet_identifier)]
        with commits_held_up(tmp_path):
            client.release(pubrec.packet_identifier)
            await client.ping()
        await client.expect(Pubcomp)
        assert stored(tmp_path, "SELECT * FROM incoming") == []


async def test_a_message_that_comes_again_after_a_crash_is_known(tmp_path: Path) -> None:
    gateway = await started(tmp_path)
    client = await Client().connect(gateway.port)
    packet_identifier = client.send("a", b"1", qos=2)
    await client.expect(Pubrec)
    await gateway.restart()
    client = await Client().connect(gateway.port)
    assert client.connack.session_present
    client.send("a", b"1", qos=2, dup=True, packet_identifier=packet_identifier)
    await client.expect(Pubrec)
    assert len(messages_in(tmp_path)) == 1


async def test_a_message_that_could_not_be_stored_is_stored_when_it_comes_again(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        subscriber = await subscribed(broker, "subscriber", "a", options=2)
        client = await Client().connect(tcp_port(broker))
        with disk_full():
            client.send("a", b"once" + bytes(100_000), qos=2, packet_identifier=7)
            assert (await client.expect(Disconnect)).reason_code == 0x83
        client = await Client().connect(tcp_port(broker))
        client.send("a", b"once" + bytes(100_000), qos=2, packet_identifier=7, dup=True)
        await client.expect(Pubrec)
        assert (await subscriber.receive()).payload[:4] == b"once"


async def test_a_message_that_comes_again_after_a_take_over_is_known(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        subscriber = await subscribed(broker, "subscriber", "a", options=2)
        first = await subscribed(broker, "client", "b")
        with commits_held_up(tmp_path):
            first.protocol.publish("a", b"once", qos=2, packet_identifier=7)
            first.protocol.unsubscribe(["b"])  # it waits, and with it the reading that brought the message
            first.flush()
            session = session_of(broker, "client")
            await until(lambda: "b" in session.unsaved, "the UNSUBSCRIBE came")
            second = Client()
            await second.open(tcp_port(broker))
            await until(lambda: broker.counters.connections_opened == 3, "the second connection came")
        await second.expect(Connack)
        second.send("a", b"once", qos=2, packet_identifier=7, dup=True)
        await second.expect(Pubrec)
        assert (await subscriber.receive()).payload == b"once"
        await subscriber.expect_no_message()

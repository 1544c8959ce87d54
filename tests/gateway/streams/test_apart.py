"""Streams have limits, rights and numbers of their own."""

from pathlib import Path

from gateway.auth.accounts import make_account, save_account
from gateway.config.streams import StreamConfig
from gateway.observe.metrics import Metrics
from tests.gateway.streams.support import PLANT, WAYS, Way, naming, publish, subscribe
from tests.gateway.support import Client, connected, running, tcp_port
from wire.codec.packets import Puback

PREFIX, DEFAULT = WAYS["writes a prefix"], WAYS["writes a topic"]
DURABLE = {"clean_start": False, "session_expiry_s": 1000}


def full(when_full: str) -> StreamConfig:
    return StreamConfig("plant", max_messages=2, when_full=when_full)  # type: ignore[arg-type]


async def fill(reader: Client, publisher: Client) -> None:
    """Two messages wait in the stream, for a reader that takes none."""
    await subscribe(reader, PREFIX)
    await reader.disconnect()
    for _ in range(2):
        await publish(publisher, PREFIX, b"it waits")


async def test_a_stream_that_is_full_refuses_and_the_same_client_goes_on_in_others(tmp_path: Path) -> None:
    async with running(tmp_path, stream=[full("reject_incoming")]) as broker:
        publisher = await connected(broker, "publisher")
        await fill(await connected(broker, "reader", **DURABLE), publisher)
        for topic, code in ((PREFIX.topic, 0x97), ("t", 0x10), (PREFIX.topic, 0x97), ("t", 0x10)):
            publisher.send(topic, b"", qos=1)
            assert (await publisher.expect(Puback)).reason_code == code
        assert broker.overview.notes() == ["stream plant: message store: full, new messages are refused"]
        assert (
            b'holdfast_stream_full{stream="plant"} 1.0' in Metrics(broker.counters, broker.overview.state, list).text()
        )


async def test_a_stream_that_waits_for_room_holds_up_no_other_client(tmp_path: Path) -> None:
    async with running(tmp_path, stream=[full("flow_control")]) as broker:
        stuck, free = await connected(broker, "stuck"), await connected(broker, "free")
        await fill(await connected(broker, "reader", **DURABLE), stuck)
        stuck.send(PREFIX.topic, b"the third", qos=1)
        for number in range(100):
            await publish(free, DEFAULT, b"%d" % number)
        await stuck.ping()  # no PUBACK came before its answer


async def test_acknowledgements_of_one_client_come_in_order_over_all_its_streams(tmp_path: Path) -> None:
    async with running(tmp_path, stream=[full("flow_control")]) as broker:
        publisher = await connected(broker, "publisher")
        await fill(await connected(broker, "reader", **DURABLE), publisher)
        sent = [publisher.send(topic, b"", qos=1) for topic in (PREFIX.topic, "t", PREFIX.topic, "t")]
        await publisher.ping()
        reader = await connected(broker, "reader", **DURABLE)
        for _ in range(3):
            await reader.receive()
        assert [(await publisher.expect(Puback)).packet_identifier for _ in sent] == sent


async def test_acknowledgements_in_two_stores_come_in_order(tmp_path: Path) -> None:
    async with running(tmp_path, stream=[PLANT]) as broker:
        publisher = await connected(broker, "publisher", receive_maximum=1000)
        sent = [publisher.send(topic, b"", qos=1) for _ in range(100) for topic in (PREFIX.topic, "t")]
        assert [(await publisher.expect(Puback)).packet_identifier for _ in sent] == sent


async def test_rules_have_the_topics_of_streams_with_their_prefix(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text(
        "allow * publish,subscribe open/#\n"
        "allow * publish,subscribe $SYS/STREAM/plant/inside/#\n"
        "allow * subscribe $SYS/#\n"
        "allow * subscribe #\n"
    )
    allowed = {"open/a": (False, True), "inside/a": (True, False), "else": (False, False)}
    async with running(tmp_path / "store", stream=[PLANT], acl=str(rules)) as broker:
        one = await connected(broker, "one")
        for topic, (in_plant, in_default) in allowed.items():
            for way, is_allowed in (
                (Way("plant", f"$SYS/STREAM/plant/{topic}"), in_plant),
                (Way("plant", topic, named="plant"), in_plant),
                (Way("", topic), in_default),
                (Way("", topic, named="default"), in_default),
            ):
                one.send(way.topic, b"", qos=1, properties=naming(way))
                assert (await one.expect(Puback)).reason_code == (0x10 if is_allowed else 0x87), way
        assert await subscribe(one, PREFIX, *(f"$SYS/STREAM/plant/{one}" for one in allowed)) == [0x87, 1, 0x87]
        assert await subscribe(one, Way("plant", named="plant"), "#") == [1]  # of that, what the rules allow
        other = await connected(broker, "other")
        await other.publish("$SYS/STREAM/plant/inside/a", b"message")
        assert (await one.receive()).payload == b"message"


async def test_users_of_a_stream_have_it_implied_over_any_listener(tmp_path: Path) -> None:
    accounts = tmp_path / "accounts"
    for name in ("tenant", "guest"):
        save_account(accounts, make_account(name, b"secret", with_scram=False))
    stream = StreamConfig("plant", users=("tenant",))
    async with running(tmp_path / "store", stream=[stream], accounts=str(accounts)) as broker:
        port = tcp_port(broker)
        tenant = await Client("tenant", username="tenant", password=b"secret").connect(port)
        guest = await Client("guest", username="guest", password=b"secret").connect(port)
        publisher = await Client("publisher", username="guest", password=b"secret").connect(port)
        await subscribe(tenant, Way("plant"), "#")
        await subscribe(guest, PREFIX)
        await publisher.publish("t", b"in the default stream")
        await publisher.publish(PREFIX.topic, b"in the stream")
        assert (await tenant.receive()).payload == b"in the stream"
        assert (await guest.receive()).payload == b"in the stream"

"""One connection's faults and limits: answered as the standard says, logged once, and without effect on others."""

import asyncio
import errno
import logging
import os
import time
from pathlib import Path

import pytest

from gateway.auth.accounts import make_account, save_account
from gateway.config.schema import LimitsConfig
from gateway.port import Visitor
from tests.gateway.connection.test_custody import commits_held_up
from tests.gateway.support import Client, connected, reasons_of, running, subscribed, tcp_port, until
from wire.codec.connect import FOR_EVER_S
from wire.codec.packets import Connack, Disconnect, Puback, Publish, Will
from wire.properties import MAXIMUM_PACKET_SIZE, RECEIVE_MAXIMUM, TOPIC_ALIAS_MAXIMUM, USER_PROPERTY
from wire.reasons import PACKET_TOO_LARGE, SUCCESS
from wire.time_offer import offered_time


async def test_the_connack_says_what_is_offered(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await connected(broker, session_expiry_s=14 * 24 * 3600)
        properties = dict(client.connack.properties)
        offered_ms = offered_time(properties)
        assert offered_ms is not None and abs(offered_ms - 1000 * time.time()) < 60_000
        properties.pop(USER_PROPERTY)
        assert properties == {RECEIVE_MAXIMUM: 2000, TOPIC_ALIAS_MAXIMUM: 32, MAXIMUM_PACKET_SIZE: 1024 * 1024}


async def test_a_gateway_may_take_larger_packets_or_smaller_ones(tmp_path: Path) -> None:
    for size in (3_000_000, 2_000):
        async with running(tmp_path, limits=LimitsConfig(maximum_packet_size=size)) as broker:
            client = await connected(broker, session_expiry_s=0)
            assert client.connack.properties[MAXIMUM_PACKET_SIZE] == size
            await client.subscribe("a")
            client.send("a", bytes(size - 100))
            packets = [await client.event(), await client.event()]
            assert {type(packet) for packet in packets} == {Puback, Publish}
            client.protocol.maximum_packet_size_peer = 2 * size
            client.send("a", bytes(size + 100))
            client.acknowledge(next(packet for packet in packets if isinstance(packet, Publish)))
            event = await client.expect(Disconnect)
            assert event.reason_code == PACKET_TOO_LARGE


async def test_client_of_small_packets_is_offered_no_time(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await connected(broker, maximum_packet_size=64)
        assert offered_time(client.connack.properties) is None


async def test_a_client_that_cannot_be_told_of_its_shorter_session_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        for largest, code in ((20, PACKET_TOO_LARGE), (21, SUCCESS)):
            client = Client(session_expiry_s=FOR_EVER_S, maximum_packet_size=largest)
            client = await client.connect(tcp_port(broker))
            assert client.connack.reason_code == code  # it leaves no property out [section 3.2.2.3.2]


async def test_a_connect_that_cannot_be_answered_changes_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await subscribed(broker, "client", "a", "will", session_expiry_s=FOR_EVER_S, will=Will("will", b""))
        for client_id in ("client", "new"):
            refused = Client(client_id, clean_start=True, session_expiry_s=FOR_EVER_S, maximum_packet_size=20)
            refused = await refused.connect(tcp_port(broker))
            assert refused.connack.reason_code == PACKET_TOO_LARGE
        assert [session.client_id for session in broker.sessions.all()] == ["client"]
        await (await connected(broker, "publisher")).publish("a", b"still here")
        assert (await client.receive()).payload == b"still here"


def facts(record: logging.LogRecord) -> dict[str, str]:
    """What a line of the log is about."""
    found: dict[str, str] = vars(record)["about"]
    return found


async def test_malformed_bytes_end_that_connection_only_and_are_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as broker:
        bad = await connected(broker, "bad")
        good = await subscribed(broker, "good", "a")
        bad.write(b"\x30\x02\x00\x09")  # PUBLISH whose topic is cut off
        assert (await bad.expect(Disconnect)).reason_code == 0x81
        await good.publish("b", b"still served")
        (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
        assert record.getMessage() == "disconnected"
        assert facts(record)["client"] == "bad"
        assert facts(record)["peer"].startswith("127.0.0.1:")
        assert "malformed packet (0x81)" in facts(record)["reason"]


async def test_what_is_no_mqtt_is_closed_and_logged_with_its_address(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as broker:
        reader, writer = await asyncio.open_connection("127.0.0.1", tcp_port(broker))
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await reader.read()
        writer.close()
        await until(lambda: "disconnected" in caplog.text, "logged")
        (record,) = [record for record in caplog.records if record.getMessage() == "disconnected"]
        assert facts(record)["peer"] == "{}:{}".format(*writer.get_extra_info("sockname"))


async def test_a_refused_client_is_logged_once_with_the_names_it_gave_and_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save_account(tmp_path / "accounts", make_account("alice", b"pencil", with_scram=False))
    async with running(tmp_path, accounts=str(tmp_path / "accounts")) as broker:
        stranger = Client("device-7", username="alice", password=b"wrong")
        await stranger.open(tcp_port(broker))
        await stranger.expect(Connack)
        (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert record.getMessage() == "login refused"
    told = facts(record)
    assert told.pop("peer").startswith("127.0.0.1:")
    assert told == {"client": "device-7", "user": "alice", "reason": "bad user name or password (0x86)"}


async def test_mqtt_3_is_refused_in_its_own_words(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        reader, writer = await asyncio.open_connection("127.0.0.1", tcp_port(broker))
        writer.write(bytes.fromhex("100d00044d5154540302000000016a"))
        assert await reader.read() == b"\x20\x02\x00\x01"
        writer.close()


async def test_what_rules_deny_to_a_client_of_mqtt_3_1_is_granted_and_does_not_come(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text("deny * subscribe a\nallow * publish,subscribe #\n")
    async with running(tmp_path / "store", acl=str(rules)) as broker:
        reader, writer = await asyncio.open_connection("127.0.0.1", tcp_port(broker))
        writer.write(bytes.fromhex("100f00064d51497364700302000000016a820a0001 000161 01 000162 01"))
        assert await reader.readexactly(4) == b"\x20\x02\x00\x00"
        assert await reader.readexactly(6) == b"\x90\x04\x00\x01\x01\x01"
        publisher = await connected(broker, "publisher")
        await publisher.publish("a", b"denied")
        await publisher.publish("b", b"x")
        assert await reader.readexactly(8) == b"\x32\x06\x00\x01b\x00\x01x"
        writer.close()


@pytest.mark.parametrize(
    ("packet", "reason_code"),
    [
        ("3006000003230001", 0x82),  # PUBLISH with a topic alias that stands for nothing
        ("300700016103230021", 0x94),  # PUBLISH with a topic alias beyond the maximum
        ("820700010000016103", 0x82),  # SUBSCRIBE at QoS 3
        ("30080001610201017aff", 0x99),  # PUBLISH of bytes that are not text
        ("620200010000", 0x81),  # PUBREL that is cut off
        ("f000", 0x82),  # AUTH
        ("c100", 0x81),  # PINGREQ with flags
        ("30ffffff7f", 0x95),  # PUBLISH of 256 MB
    ],
)
async def test_what_breaks_the_protocol_is_answered_with_its_reason_code(
    tmp_path: Path, packet: str, reason_code: int
) -> None:
    async with running(tmp_path) as broker:
        client = await Client().connect(tcp_port(broker))
        client.write(bytes.fromhex(packet))
        assert (await client.expect(Disconnect)).reason_code == reason_code


async def test_a_silent_client_is_sent_away_after_its_keep_alive(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await connected(broker, keep_alive_s=1)
        assert (await client.expect(Disconnect)).reason_code == 0x8D


async def test_what_a_client_has_sent_counts_though_the_gateway_stood_still(tmp_path: Path) -> None:
    """Its machine was paused, or other programs had the processor, for longer than the keep alive."""
    async with running(tmp_path) as broker:
        client = await Client(keep_alive_s=1, will=Will("will", b"")).connect(tcp_port(broker))
        watcher = await subscribed(broker, "watcher", "will", keep_alive_s=0)
        client.write(b"\xc0\x00")
        time.sleep(4)
        await client.publish("a")
        await watcher.expect_no_message()


class VanishedPort:
    """A line whose other end is gone, which TCP tells after a while."""

    peer = "vanished"
    visitor = Visitor("vanished", may_be_anonymous=True)
    backlog = 0

    async def receive(self) -> bytes:
        raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))

    def unpack(self, data: bytes) -> tuple[bytes]:
        return (data,)

    async def drain(self) -> None:
        pass

    def send(self, data: bytes) -> None:
        pass

    def note_admitted(self) -> None:
        pass

    def close(self) -> None:
        pass


async def test_a_client_that_has_vanished_keeps_no_task_busy(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running(tmp_path, limits=LimitsConfig(connect_timeout_s=1)) as broker:
        with caplog.at_level("INFO"):
            broker.connect(VanishedPort(), "")
            await until(lambda: reasons_of(caplog), "its connection ended")
    assert reasons_of(caplog) == ["the line failed: [Errno 110] Connection timed out"]


async def test_more_than_receive_maximum_is_answered_with_0x93(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await Client().connect(tcp_port(broker))
        publishes = [b"\x32\x06\x00\x01a" + number.to_bytes(2, "big") + b"\x00" for number in range(1, 2100)]
        with commits_held_up(tmp_path):
            client.write(b"".join(publishes))
            event = await client.expect(Disconnect)
        assert event.reason_code == 0x93


async def test_pubacks_come_in_the_order_of_their_publishes(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await Client().connect(tcp_port(broker))
        sent = [client.send("a", b"%d" % number) for number in range(1000)]
        assert [(await client.expect(Puback)).packet_identifier for _ in sent] == sent


async def test_a_client_that_reads_nothing_is_not_read_from_for_ever(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await subscribed(broker, "deaf", "#", options=0, session_expiry_s=0)
        other = await connected(broker, "other")
        for _ in range(50):
            await other.publish("a", b"x" * 500_000)
        assert broker.counters.payload_bytes_sent < 15_000_000  # the system's buffers, and a little in the gateway


async def test_unsubscribing_answers_for_each_filter(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await subscribed(broker, "client", "a")
        assert await client.unsubscribe("a", "never") == [0x00, 0x11]
        await client.publish("a", b"")
        await client.expect_no_message()


async def test_messages_before_a_subscription_do_not_reach_it(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await subscribed(broker, "client", "other")
        await client.publish("a", b"before")
        await client.subscribe("a")
        client.send("a", b"after")
        events = [await client.event(), await client.event()]
        assert [event.payload for event in events if not isinstance(event, Puback)] == [b"after"]  # type: ignore[union-attr]

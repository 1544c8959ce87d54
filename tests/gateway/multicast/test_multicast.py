"""Multicast groups, as publishers, receivers and other hosts of the LAN see them."""

import asyncio
import logging
import socket
import ssl
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.config.schema import LimitsConfig
from gateway.observe.metrics import Metrics
from tests.gateway.multicast.support import Display, ask, group, keys_in, plain, ports, secure, sending
from tests.gateway.support import Client, said_of, until
from tools.lab.testing.lines import StreamLine
from wire import properties as p
from wire.codec.packets import NO_LOCAL, RETAIN_NEVER, Connack, Publish, Suback
from wire.multicast import OVERHEAD, decode_key
from wire.multicast.sender import ROOM
from wire.reasons import IMPLEMENTATION_SPECIFIC_ERROR, NO_SUBSCRIPTION_EXISTED, SUCCESS


def reason_of(answer: Suback) -> str:
    assert set(answer.reason_codes) == {IMPLEMENTATION_SPECIFIC_ERROR}, answer
    assert keys_in(answer) == []
    reason: str = answer.properties[p.REASON_STRING]
    return reason


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_message_of_any_qos_reaches_all_receivers_in_one_datagram_and_none_over_tcp(
    tmp_path: Path, qos: int
) -> None:
    async with sending(tmp_path) as broker:
        displays = [await Display.of(await secure(tmp_path, broker, f"display-{number}")) for number in range(3)]
        publisher = await plain(broker)
        publisher.send("displays/1", b"hello", qos=qos, properties={p.CONTENT_TYPE: "text/plain"})
        for display in displays:
            packet = await display.receive()
            assert packet == Publish("displays/1", b"hello", properties={p.CONTENT_TYPE: "text/plain"})
            await display.client.ping()
            await display.client.expect_no_message()
        (state,) = broker.overview.state().multicast
        assert (state.receivers, state.messages_sent, state.keys_handed_out) == (3, 1, 3)


async def test_messages_that_come_together_share_datagrams(tmp_path: Path) -> None:
    async with sending(tmp_path) as broker:
        display = await Display.of(await secure(tmp_path, broker))
        publisher = await plain(broker)
        for number in range(100):
            publisher.protocol.publish("displays/1", b"%d" % number, qos=0)
        publisher.flush()
        assert await display.payloads(100) == [b"%d" % number for number in range(100)]
        assert display.receiver.datagrams < 20
        assert display.receiver.lost_datagrams == 0


async def test_only_what_the_groups_filters_match_goes_out(tmp_path: Path) -> None:
    async with sending(tmp_path, group("wall", "displays/+/text", "displays/1/#")) as broker:
        display = await Display.of(await secure(tmp_path, broker), "displays/1/text")
        publisher = await plain(broker)
        for topic in ("displays/2/image", "other", "displays/1/text", "displays/2/text"):
            await publisher.publish(topic, topic.encode())
        assert await display.payloads(2) == [b"displays/1/text", b"displays/2/text"]


async def test_a_message_that_fits_no_datagram_goes_over_tls_to_the_receivers_that_asked_for_it(
    tmp_path: Path,
) -> None:
    async with sending(tmp_path) as broker:
        one = await Display.of(await secure(tmp_path, broker, "one"), "displays/1")
        other = await Display.of(await secure(tmp_path, broker, "other"), "displays/2")
        publisher = await plain(broker)
        largest = bytes(ROOM - len(Publish("displays/1", b"").encode()) - 1)
        await publisher.publish("displays/1", largest)
        await publisher.publish("displays/1", largest + b"\0")
        await publisher.publish("displays/1", b"behind")
        assert [len(one) for one in await one.payloads(2)] == [len(largest), len(b"behind")]
        packet = await one.client.receive()
        assert (packet.topic, len(packet.payload), packet.qos) == ("displays/1", len(largest) + 1, 0)
        await other.client.expect_no_message()
        (state,) = broker.overview.state().multicast
        assert (state.messages_sent, state.oversize_messages) == (2, 1)


async def test_retained_messages_come_over_tls_at_the_subscription(tmp_path: Path) -> None:
    async with sending(tmp_path) as broker:
        publisher = await plain(broker)
        await publisher.publish("displays/1", b"last", retain=True)
        display = await Display.of(await secure(tmp_path, broker))
        packet = await display.client.receive()
        assert (packet.topic, packet.payload, packet.retain) == ("displays/1", b"last", True)
        await publisher.publish("displays/1", b"next", retain=True)
        packet = await display.receive()
        assert (packet.payload, packet.retain) == (b"next", False)
        silent = await secure(tmp_path, broker, "silent")
        assert (await ask(silent, "displays/#", options=RETAIN_NEVER)).reason_codes == [0]
        await silent.expect_no_message()


async def test_a_multicast_subscription_replaces_one_over_tcp_and_the_other_way_round(tmp_path: Path) -> None:
    async with sending(tmp_path) as broker:
        client, publisher = await secure(tmp_path, broker), await plain(broker)
        await client.subscribe("displays/#")
        await publisher.publish("displays/1", b"over TCP")
        assert (await client.receive()).payload == b"over TCP"
        display = await Display.of(client)
        await publisher.publish("displays/1", b"over UDP")
        assert await display.payloads(1) == [b"over UDP"]
        await client.expect_no_message()
        assert await client.subscribe("displays/#") == [1]
        await publisher.publish("displays/1", b"over TCP again")
        assert (await client.receive()).payload == b"over TCP again"
        await client.expect_no_message()


async def test_a_stored_subscription_that_multicast_has_replaced_does_not_come_back(tmp_path: Path) -> None:
    config = group()
    async with sending(tmp_path, config) as broker:
        client = await secure(tmp_path, broker)
        await client.subscribe("displays/#", "others")
        await ask(client, "displays/#")
        await client.disconnect()
    async with sending(tmp_path, config) as broker:
        publisher = await plain(broker)
        await publisher.publish("displays/1", b"missed")
        await publisher.publish("others", b"stored")
        client = await secure(tmp_path, broker)
        assert (await client.receive()).payload == b"stored"
        await client.expect_no_message()


async def test_unsubscribe_ends_it_once(tmp_path: Path) -> None:
    async with sending(tmp_path) as broker:
        client = await secure(tmp_path, broker)
        await ask(client, "displays/1", "displays/2")
        assert await client.unsubscribe("displays/1", "displays/1") == [SUCCESS, NO_SUBSCRIPTION_EXISTED]
        assert broker.overview.state().multicast[0].receivers == 1
        assert await client.unsubscribe("displays/2") == [SUCCESS]
        assert broker.overview.state().multicast[0].receivers == 0


async def test_a_client_that_leaves_is_counted_no_more_and_frees_its_memory(tmp_path: Path) -> None:
    async with sending(tmp_path, limits=LimitsConfig(kept_bytes=200_000)) as broker:
        long = "displays/" + "x" * 30_000
        for turn in range(20):
            client = await secure(tmp_path, broker, f"display-{turn % 2}", clean_start=True)
            assert (await ask(client, long, long + "y")).reason_codes == [0, 0]
            assert "the client's memory is used up" in reason_of(await ask(client, long + "z", long + "zz"))
            client.cut()
            await until(lambda: not broker.overview.state().multicast[0].receivers, "the receiver is gone")


async def test_a_client_has_few_filters_over_multicast(tmp_path: Path) -> None:
    async with sending(tmp_path) as broker:
        client = await secure(tmp_path, broker)
        for number in range(100):
            assert (await ask(client, f"displays/{number}")).reason_codes == [0]
        assert "at most 100 filters" in reason_of(await ask(client, "displays/100"))
        assert (await ask(client, "displays/99")).reason_codes == [0]


async def test_without_tls_no_key_is_handed_out(tmp_path: Path) -> None:
    async with sending(tmp_path) as broker:
        client = await plain(broker)
        assert reason_of(await ask(client, "displays/#")) == "hf-multicast: a key is handed out over TLS alone"
        await client.publish("displays/1", b"x")
        await client.expect_no_message()


@pytest.mark.parametrize(
    ("filters", "options", "more", "reason"),
    [
        (["others/#"], 0, {}, "no multicast group has all that 'others/#' matches"),
        (["displays/1", "#"], 0, {}, "no multicast group has all that 'displays/1', '#' matches"),
        (["displays/1"], 0, {"name": "hall"}, "there is no multicast group 'hall'"),
        (["other/1"], 0, {"name": "wall"}, "the multicast group 'wall' does not have all that 'other/1' matches"),
        (["$share/g/displays/1"], 0, {}, "a shared subscription does not go over multicast"),
        (["$SYS/STREAM/default/displays/1"], 0, {}, "a subscription that names its stream does not go over"),
        (["displays/1"], 0, {"user_properties": [("hf-stream", "default")]}, "a subscription that names its stream"),
        (["displays/1"], NO_LOCAL, {}, "No Local cannot be kept over multicast"),
        (["displays/1"], 0, {"user_properties": [("hf-multicast", "wall")]}, "expected one user property hf-multicast"),
        (["displays/1"], 0, {"user_properties": [("hf-select", "a = 1")]}, "a selector cannot be kept over multicast"),
    ],
)
async def test_what_cannot_go_over_multicast_is_refused_in_words_and_subscribes_nothing(
    tmp_path: Path, filters: list[str], options: int, more: dict[str, object], reason: str
) -> None:
    async with sending(tmp_path) as broker:
        client, publisher = await secure(tmp_path, broker), await plain(broker)
        answer = await ask(client, *filters, options=options, **more)  # type: ignore[arg-type]
        assert reason_of(answer).startswith(f"hf-multicast: {reason}")
        await publisher.publish("displays/1", b"x")
        await client.expect_no_message()


async def test_a_client_that_could_not_read_a_key_gets_none(tmp_path: Path) -> None:
    async with sending(tmp_path) as broker:
        client = await secure(tmp_path, broker, maximum_packet_size=1399)
        reason = reason_of(await ask(client, "displays/1"))
        assert reason == "hf-multicast: expected a Maximum Packet Size of 1400 or more"


async def test_a_client_that_wants_no_user_properties_gets_no_key(tmp_path: Path) -> None:
    async with sending(tmp_path) as broker:
        client = Client("display")
        context = ssl.create_default_context(cafile=tmp_path / "authority.pem")
        client.line = StreamLine(*await asyncio.open_connection("127.0.0.1", ports(broker)[1], ssl=context))
        client.protocol.connect(0, {p.REQUEST_PROBLEM_INFORMATION: 0})
        client.flush()
        await client.expect(Connack)
        assert (await ask(client, "displays/1")).reason_codes == [IMPLEMENTATION_SPECIFIC_ERROR]
        assert broker.overview.state().multicast[0].receivers == 0
        client.line.close()


async def test_a_gateway_without_groups_says_so(tmp_path: Path) -> None:
    async with sending(tmp_path, multicast=[]) as broker:
        client = await secure(tmp_path, broker)
        assert reason_of(await ask(client, "displays/#")) == "hf-multicast: there are no multicast groups"


async def test_a_packet_that_names_its_stream_for_some_filters_gets_the_key_for_the_others(tmp_path: Path) -> None:
    async with sending(tmp_path) as broker:
        client, publisher = await secure(tmp_path, broker), await plain(broker)
        answer = await ask(client, "$SYS/STREAM/default/displays/1", "displays/2")
        assert answer.reason_codes == [IMPLEMENTATION_SPECIFIC_ERROR, 0]
        display = Display(client)
        display.take(*keys_in(answer))
        await publisher.publish("displays/2", b"x")
        assert await display.payloads(1) == [b"x"]


async def test_a_key_needs_the_right_to_all_topics_of_the_group(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text("deny * subscribe displays/secret\nallow * subscribe displays/#\nallow * publish #\n")
    config = group("wall", "displays/1/#", "displays/+")
    async with sending(tmp_path, config, group("part", "displays/1/#"), acl=str(rules)) as broker:
        client = await secure(tmp_path, broker)
        answer = await ask(client, "displays/1/a", name="wall")
        assert reason_of(answer).startswith("hf-multicast: the access rules do not allow all topics")
        assert (await ask(client, "displays/1/a", name="part")).reason_codes == [0]


async def test_the_next_key_comes_over_tls_before_it_is_used_and_old_datagrams_count_no_more(tmp_path: Path) -> None:
    async with sending(tmp_path) as broker:
        display = await Display.of(await secure(tmp_path, broker))
        publisher = await plain(broker)
        await publisher.publish("displays/1", b"1")
        old = await display.datagram()
        assert display.receiver.receive(old)
        broker.reload()
        await display.take_next_key()
        late = await Display.of(await secure(tmp_path, broker, "late"))
        await until_key(display, 2)
        await publisher.publish("displays/1", b"2")
        assert await display.payloads(1) == await late.payloads(1) == [b"2"]
        assert display.receiver.receive(old) == late.receiver.receive(old) == []
        assert display.receiver.refused["key"] == late.receiver.refused["key"] == 1
        assert display.receiver.lost_datagrams == 0


async def until_key(display: Display, number: int) -> None:
    """Takes heartbeats until one is authentic under the key with this number."""
    while int.from_bytes((datagram := await display.datagram())[4:8], "big") != number:
        assert display.receiver.receive(datagram) == []
    assert display.receiver.receive(datagram) == []


async def test_a_receiver_that_loses_its_right_gets_no_next_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rules = tmp_path / "rules"
    rules.write_text("allow * subscribe displays/#\nallow * publish #\n")
    caplog.set_level(logging.INFO)
    async with sending(tmp_path, acl=str(rules)) as broker:
        display = await Display.of(await secure(tmp_path, broker))
        rules.write_text("allow * subscribe display/#\nallow * publish #\n")
        broker.reload()
        await display.client.ping()
        assert broker.overview.state().multicast[0].receivers == 0
    assert [one["receivers"] for one in said_of(caplog, "multicast key changes")] == ["0"]


async def test_a_next_key_that_a_receiver_has_got_before_it_lost_its_right_is_never_used(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text("allow * subscribe displays/#\nallow * publish #\n")
    async with sending(tmp_path, acl=str(rules)) as broker:
        lost, kept = [await Display.of(await secure(tmp_path, broker, name)) for name in ("lost", "kept")]
        broker.reload()
        await lost.take_next_key()
        await kept.take_next_key()
        rules.write_text("deny * subscribe lost/#\nallow * subscribe displays/#\nallow * publish #\n")
        lost.client.cut()
        await until(lambda: broker.overview.state().multicast[0].receivers == 1, "the receiver is gone")
        broker.reload()
        await kept.take_next_key()
        await until_key(kept, 2)
        publisher = await plain(broker)
        await publisher.publish("displays/1", b"for others")
        assert await kept.payloads(1) == [b"for others"]
        while not lost.receiver.refused["forged"]:
            assert lost.receiver.receive(await lost.datagram()) == []


async def test_no_key_is_ever_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with sending(tmp_path) as broker:
        display = await Display.of(await secure(tmp_path, broker))
        answer = await ask(display.client, "displays/2")
        broker.reload()
        key = decode_key(keys_in(answer)[0]).key.hex()
    assert [(one["client"], one["group"], one["key"]) for one in said_of(caplog, "multicast key handed out")] == (
        [("display", "wall", 1)] * 2
    )
    assert not any(key in f"{record.getMessage()} {vars(record)}" for record in caplog.records)


async def test_a_gateway_that_starts_anew_has_another_key_and_epoch(tmp_path: Path) -> None:
    config = group()
    async with sending(tmp_path, config) as broker:
        first = await Display.of(await secure(tmp_path, broker))
        publisher = await plain(broker)
        await publisher.publish("displays/1", b"before")
        old = await first.datagram()
        assert first.receiver.receive(old)
    async with sending(tmp_path, config) as broker:
        display = await Display.of(await secure(tmp_path, broker))
        display.receiver, before = first.receiver, display.receiver
        publisher = await plain(broker)
        await publisher.publish("displays/1", b"after")
        datagram = await display.datagram()
        assert before.receive(old) == []
        assert [bytes(one.payload) for one in before.receive(datagram)] == [b"after"]
        assert first.receiver.receive(datagram) == []  # until its client has subscribed again
        assert (first.receiver.refused["epoch"], before.refused["epoch"]) == (1, 1)


async def test_a_stranger_on_the_lan_changes_nothing(tmp_path: Path) -> None:
    config = group()
    async with sending(tmp_path, config) as broker:
        display = await Display.of(await secure(tmp_path, broker))
        publisher = await plain(broker)
        await publisher.publish("displays/1", b"1")
        seen = await display.datagram()
        assert display.receiver.receive(seen)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
            forged = seen[:16] + (2).to_bytes(8, "big") + seen[24:]
            for hostile in (seen, forged, seen[:OVERHEAD], seen[:10], b"", b"x" * 1400, b"x" * 1401):
                stranger.sendto(hostile, (config.address, config.port))
            await publisher.publish("displays/1", b"2")
            assert await display.payloads(1) == [b"2"]
        assert sum(display.receiver.refused.values()) == 7
        assert (display.receiver.messages, display.receiver.lost_messages) == (2, 0)


async def test_without_receivers_nothing_is_sent(tmp_path: Path) -> None:
    async with sending(tmp_path) as broker:
        publisher = await plain(broker)
        await publisher.publish("displays/1", b"no receiver yet")
        display = await Display.of(await secure(tmp_path, broker))
        await publisher.publish("displays/1", b"1")
        assert await display.payloads(1) == [b"1"]
        assert broker.overview.state().multicast[0].messages_sent == 1


async def test_a_heartbeat_tells_of_lost_datagrams_when_nothing_follows(tmp_path: Path) -> None:
    async with sending(tmp_path) as broker:
        display = await Display.of(await secure(tmp_path, broker))
        publisher = await plain(broker)
        await publisher.publish("displays/1", b"lost")
        await display.datagram()
        while not display.receiver.datagrams:
            assert display.receiver.receive(await display.datagram()) == []
        assert (display.receiver.lost_datagrams, display.receiver.lost_messages) == (1, 1)


async def test_a_group_whose_interface_is_missing_is_told_and_the_broker_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with sending(tmp_path, replace(group(), interface="missing0")) as broker:
        client = await secure(tmp_path, broker)
        assert (await ask(client, "displays/#")).reason_codes == [0]
        publisher = await plain(broker)
        await publisher.publish("displays/1", b"x")
        assert broker.overview.problems() == ["multicast wall: interface missing0: no interface with this name"]
    assert [one["reason"] for one in said_of(caplog, "multicast does not go out")] == [
        "interface missing0: no interface with this name"
    ]


async def test_a_group_whose_interface_comes_later_goes_out_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    numbers = {"missing0": 0}

    def number_of(name: str) -> int:
        if not numbers[name]:
            raise OSError("no interface with this name")
        return numbers[name]

    loopback = socket.if_nametoindex("lo")
    monkeypatch.setattr("gateway.multicast.group.socket.if_nametoindex", lambda name: number_of(name))
    async with sending(tmp_path, replace(group(), interface="missing0")) as broker:
        assert broker.overview.problems()
        numbers["missing0"] = loopback
        await until(lambda: not broker.overview.problems(), "the group goes out")
        numbers["lo"] = loopback
        display = await Display.of(await secure(tmp_path, broker))
        publisher = await plain(broker)
        await publisher.publish("displays/1", b"x")
        assert await display.payloads(1) == [b"x"]
    assert [len(said_of(caplog, f"multicast {event}")) for event in ("does not go out", "goes out again")] == [1, 1]


async def test_the_metrics_have_each_group(tmp_path: Path) -> None:
    async with sending(tmp_path) as broker:
        await Display.of(await secure(tmp_path, broker))
        publisher = await plain(broker)
        await publisher.publish("displays/1", b"x")
        await publisher.publish("displays/1", bytes(2000))
        text = Metrics(broker.counters, broker.overview.state, list).text().decode()
        for line in (
            'holdfast_multicast_receivers{group="wall"} 1.0',
            'holdfast_multicast_goes_out{group="wall"} 1.0',
            'holdfast_multicast_messages_sent_total{group="wall"} 1.0',
            'holdfast_multicast_oversize_messages_total{group="wall"} 1.0',
            'holdfast_multicast_keys_handed_out_total{group="wall"} 1.0',
        ):
            assert line in text


async def test_a_message_whose_expiry_has_passed_does_not_go_out(tmp_path: Path) -> None:
    async with sending(tmp_path) as broker:
        display = await Display.of(await secure(tmp_path, broker))
        publisher = await plain(broker)
        await publisher.publish("displays/1", b"gone", properties={p.MESSAGE_EXPIRY_INTERVAL: 0})
        await publisher.publish("displays/1", b"fresh", properties={p.MESSAGE_EXPIRY_INTERVAL: 60})
        packet = await display.receive()
        assert packet.payload == b"fresh"
        assert 0 < packet.properties[p.MESSAGE_EXPIRY_INTERVAL] <= 60


async def test_what_was_published_before_the_gateway_ends_still_goes_out(tmp_path: Path) -> None:
    async with sending(tmp_path) as broker:
        display = await Display.of(await secure(tmp_path, broker))
        publisher = await plain(broker)
        for number in range(200):
            publisher.protocol.publish("displays/1", b"%d" % number, qos=0)
        publisher.flush()
        await publisher.publish("other", b"")
    assert await display.payloads(200) == [b"%d" % number for number in range(200)]

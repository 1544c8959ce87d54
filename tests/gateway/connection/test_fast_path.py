"""The hot path: it takes any bytes for what the protocol core alone takes them for, only faster."""

import functools
import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gateway.auth.permissions import Topics
from gateway.message import message_from
from gateway.store import PublishBatch
from wire import properties as p
from wire.bulk.connection import Acknowledgements, BulkServerConnection, cut_acknowledgements, encode_acknowledgements
from wire.bulk.reader import BulkReader, Publishes
from wire.codec.packets import MQTT_3_1_1, MQTT_5, Connect, Packet, Pingreq, Puback, Pubcomp, Publish, Pubrec, Pubrel
from wire.connection.server import ServerConnection
from wire.errors import Closed
from wire.hops import HOPS_PROPERTY
from wire.identity import IDENTITY_PROPERTY, RECEIVED_PROPERTY
from wire.packet_types import PUBACK, PUBCOMP, PUBREC, PUBREL
from wire.route_numbers import VIA_PROPERTY, encode_via

Event = tuple[Any, ...]
LIMITS: dict[str, Any] = {"receive_maximum": 20, "maximum_packet_size": 50_000, "topic_alias_maximum": 2}
OUTGOING = range(1, 8)  # packet identifiers of messages that the client has from us at QoS 1
OUTGOING_ONCE = range(8, 20)  # and at QoS 2


class Application:
    """What a broker does: stores, acknowledges at once or when all that came together is stored, and writes it down."""

    def __init__(self, protocol: ServerConnection, answers_at_once: bool) -> None:
        self.protocol = protocol
        self.events: list[Event] = []
        self.topics = Topics()
        self._numbered = 0
        self._answers_at_once = answers_at_once
        self._waiting: list[Callable[[], None]] = []

    def handle_events(self) -> None:
        while (event := self.protocol.next_event()) is not None:
            self._handle(event)

    def take(self, step: Publishes | Acknowledgements) -> None:
        if isinstance(step, Publishes):
            count, level, brings = len(step.identifiers), self.protocol.protocol_level, bool(step.identities)
            run = PublishBatch(step.packets, step.topics, count, level, "c", 7, "gw")
            run.first_seq, run.bring_identities = 0 if brings else self._numbered + 1, brings
            assert {message.topic for message in run.messages()} == set(step.topics)
            assert sum(len(message.payload) for message in run.messages()) == step.payload_size
            assert sum(message.content_size for message in run.messages()) == step.content_size == run.content_size
            assert [(one.epoch, one.seq, one.origin) for one in run.messages() if brings] == [
                (int(epoch, 16), int(seq), origin.decode()) for epoch, seq, origin in step.identities
            ]
            self._numbered += 0 if brings else count
            self.events += zip(run.messages(), step.identifiers, strict=True)
            self._answer_all(PUBACK if step.qos == 1 else PUBREC, step.identifiers)
        else:
            self.events += [(step.packet_type, identifier, 0) for identifier in step.identifiers]
            if step.packet_type == PUBREL:
                self._answer_all(PUBCOMP, step.identifiers)
            elif step.packet_type == PUBREC:
                self._release_all(step.identifiers)

    def end_turn(self) -> None:
        waiting, self._waiting = self._waiting, []
        for answer in waiting:
            if self.protocol.connected:
                answer()

    def _handle(self, event: Packet | Closed) -> None:
        protocol = self.protocol
        match event:
            case Connect():
                protocol.accept(False)
                for identifier in [*OUTGOING, *OUTGOING_ONCE]:
                    qos = 1 if identifier in OUTGOING else 2
                    protocol.publish("to/client", b"", qos=qos, packet_identifier=identifier)
                protocol.data_to_send()
            case Publish():
                message = message_from(event, "c", "gw", 7)
                self.topics.learn(message, lambda _: True)
                if event.qos and not message.origin:
                    self._numbered += 1
                    message.origin, message.seq = "gw", self._numbered
                self.events.append((message, event.packet_identifier))
                if event.packet_identifier is not None:
                    acknowledge = protocol.puback if event.qos == 1 else protocol.pubrec
                    self._answer(functools.partial(acknowledge, event.packet_identifier))
            case Pubrel():
                self.events.append((event.TYPE, event.packet_identifier, event.reason_code))
                self._answer(lambda: protocol.pubcomp(event.packet_identifier))
            case Pubrec() if event.reason_code < 0x80:
                self.events.append((event.TYPE, event.packet_identifier, event.reason_code))
                self._answer(lambda: protocol.pubrel(event.packet_identifier))
            case Puback() | Pubrec() | Pubcomp():
                self.events.append((event.TYPE, event.packet_identifier, event.reason_code))
            case _:
                self.events.append((repr(event),))

    def _answer_all(self, packet_type: int, identifiers: list[int]) -> None:
        assert isinstance(self.protocol, BulkServerConnection)
        protocol = self.protocol
        self._answer(lambda: protocol.answer_all(packet_type, identifiers))

    def _release_all(self, identifiers: list[int]) -> None:
        assert isinstance(self.protocol, BulkServerConnection)
        protocol = self.protocol
        self._answer(lambda: protocol.pubrel_all(identifiers))

    def _answer(self, answer: Callable[[], None]) -> None:
        if self._answers_at_once:
            answer()
        else:
            self._waiting.append(answer)


def plain(pieces: list[bytes], at_once: bool) -> tuple[list[Event], bytes]:
    """The protocol core alone."""
    application = Application(ServerConnection(**LIMITS), at_once)
    sent = b""
    for now_ms, piece in enumerate(pieces):
        application.protocol.receive_data(piece, now_ms)
        application.handle_events()
        application.end_turn()
        sent += application.protocol.data_to_send()
    return application.events, sent


def hot(pieces: list[bytes], at_once: bool) -> tuple[list[Event], bytes, int]:
    """The hot path; also tells how many packets went it."""
    protocol = BulkServerConnection(**LIMITS)
    application = Application(protocol, at_once)
    inflow = BulkReader(protocol, application.topics, application.topics.origins)
    sent, taken = b"", 0
    for now_ms, piece in enumerate(pieces):
        for step in inflow.feed(piece, now_ms, lambda _: True):
            if step is None:
                application.handle_events()
            else:
                taken += len(step.identifiers)
                application.take(step)
        application.end_turn()
        sent += protocol.data_to_send()
    return application.events, sent, taken


def properties(dice: random.Random) -> dict[int, Any]:
    """What a device's messages have, most of the time, and what others' may."""
    found: dict[int, Any] = {p.CONTENT_TYPE: dice.choice(["application/senml+cbor", "text/plain", "\u00fc" * 100])}
    pairs = [("a", "b"), ("site", "\u00fc" * 60), ("", ""), (IDENTITY_PROPERTY, "00000001/7/other")]
    more = [pair for pair in pairs if dice.random() < 0.1]
    if dice.random() < 0.2:
        found |= dice.choice(
            [
                {p.MESSAGE_EXPIRY_INTERVAL: dice.choice([0, 1, 60])},
                {p.PAYLOAD_FORMAT_INDICATOR: 1},
                {p.RESPONSE_TOPIC: "answers"},
                {p.CORRELATION_DATA: dice.randbytes(9)},
                {p.SUBSCRIPTION_IDENTIFIER: [1]},
            ]
        )
    seq, origin = dice.randrange(1, 10 ** dice.choice([3, 3, 20])), dice.choice(["device", "device", "ger\u00e4t", ""])
    identity = f"0000a3f1/{seq}/{origin}"
    own = [] if dice.random() < 0.2 else [(IDENTITY_PROPERTY, dice.choice([identity] * 9 + ["mine", ""]))]
    last = [(RECEIVED_PROPERTY, "17/north")] if dice.random() < 0.1 else []
    if dice.random() < 0.4:
        more, own, last = [], trail(dice, identity), []
    if pairs := [*more, *own, *last]:
        found[p.USER_PROPERTY] = pairs
    return found


def trail(dice: random.Random, identity: str) -> list[tuple[str, str]]:
    """What the routes of one to three gateways add, most of the time in the form and order in which they do."""
    pairs: list[tuple[str, str]] = []
    for hop, gateway in enumerate(["north", "middle", "a/b %"][: dice.randrange(1, 4)]):
        number = dice.randrange(1, 10**6)
        pairs.append((HOPS_PROPERTY, f"0000000{hop}"))
        pairs.append((VIA_PROPERTY, encode_via(hop, [(number, number)], gateway, "to b & c")))
    pairs[-1:-1] = [(IDENTITY_PROPERTY, identity), (RECEIVED_PROPERTY, f"{dice.randrange(10**13)}/north")]
    if dice.random() < 0.1:
        pairs.insert(dice.randrange(len(pairs)), dice.choice([*pairs, ("site", "x"), (HOPS_PROPERTY, "far")]))
    if dice.random() < 0.1:
        del pairs[dice.randrange(len(pairs))]
    if dice.random() < 0.1:
        name, value = pairs.pop(place := dice.randrange(len(pairs)))
        pairs.insert(place, (name, dice.choice([value[1:], value + "/", f"\u00fc{value}", "", "0/1"])))
    if dice.random() < 0.05:
        dice.shuffle(pairs)
    return pairs


def packets(dice: random.Random, level: int) -> Iterator[bytes]:
    """What a busy client sends, and now and then what it should not."""
    yield Connect("c", protocol_level=level).encode()
    identifiers = {1: 0, 2: 0}
    for _ in range(dice.randrange(5, 120)):
        kind = dice.randrange(100)
        qos = 1 if dice.random() < 0.7 else 2
        identifier = identifiers[qos] = identifiers[qos] % 30 + 1
        identifier += 30 * (qos - 1)
        topic = dice.choice(["a/b", "a/b", "a/b", "température/1", "x" * 200])
        payload = dice.randbytes(dice.choice([0, 1, 100, 100, 100, 127, 130, 16_370, 20_000]))
        if kind < 40:
            yield Publish(topic, payload, qos, packet_identifier=identifier).encode(level)
        elif kind < 70:
            some = properties(dice)
            yield Publish(topic, payload, qos, packet_identifier=identifier, properties=some).encode(level)
        elif kind < 80:
            yield Pubrel(identifier).encode(level)
        elif kind < 83:
            yield Puback(dice.choice(OUTGOING)).encode(level)
        elif kind < 88:
            first = dice.choice(OUTGOING_ONCE)
            together = range(first, min(first + dice.randrange(1, 6), OUTGOING_ONCE[-1]))
            yield from (dice.choice([Pubrec, Pubrec, Pubcomp])(one).encode(level) for one in together)
            yield from (Pubcomp(one).encode(level) for one in together if dice.random() < 0.3)
        elif kind < 90:
            yield Publish(topic, payload, qos, True, packet_identifier=identifier).encode(level)
        elif kind < 92:
            yield Publish(topic, payload, qos, False, True, identifier).encode(level)
        elif kind < 94:
            yield Publish(topic, payload).encode(level)
        elif kind < 96:
            yield Publish(topic, payload, qos, packet_identifier=identifier, properties={p.TOPIC_ALIAS: 1}).encode(
                level
            )
        elif kind < 98:
            yield dice.choice([Pingreq(), Pubcomp(3), Puback(200), Pubrec(200), Pubrec(9, 0x80)]).encode(level)
        else:
            yield dice.choice(
                [b"\x32\x05\0\x03a/#\0\x01", b"\x34\x05\0\x01a\0\0", b"\x62\x02\0\0", b"\x32\x82\0", b"\x40\x04\0\x01"]
            )


def split(dice: random.Random, data: bytes) -> list[bytes]:
    cuts = sorted(dice.randrange(len(data) + 1) for _ in range(dice.choice([0, 1, 5, 50])))
    edges = [0, *cuts, len(data)]
    return [data[begin:end] for begin, end in itertools.pairwise(edges) if begin < end]


@pytest.mark.parametrize("level", [MQTT_3_1_1, MQTT_5])
@pytest.mark.parametrize("at_once", [True, False], ids=["answered at once", "answered turn by turn"])
def test_it_means_what_the_protocol_core_alone_means(seed: int, level: int, at_once: bool) -> None:
    dice = random.Random(seed)
    taken = 0
    for _ in range(150):
        data = bytearray(b"".join(packets(dice, level)))
        for _ in range(dice.choice([0, 0, 1, 3])):
            data[dice.randrange(len(data))] = dice.randrange(256)
        pieces = split(dice, bytes(data))
        *outcome, by_hot_path = hot(pieces, at_once)
        assert tuple(outcome) == plain(pieces, at_once)
        taken += by_hot_path
        if at_once:  # then it does not matter either how the bytes were split
            assert tuple(outcome) == plain([bytes(data)], at_once)
    assert taken > 500


@pytest.mark.parametrize("level", [MQTT_3_1_1, MQTT_5])
def test_what_follows_a_topics_first_message_goes_the_hot_path(level: int) -> None:
    publishes = [Publish("a/b", b"%d" % i, 1, packet_identifier=i).encode(level) for i in range(1, 20)]
    events, sent, taken = hot([Connect("c", protocol_level=level).encode(), b"".join(publishes)], True)
    assert taken == 18
    assert [message.payload for message, _ in events] == [b"%d" % i for i in range(1, 20)]
    assert sent.endswith(encode_acknowledgements(PUBACK, list(range(2, 20))))


def test_what_devices_send_goes_the_hot_path() -> None:
    common = {p.CONTENT_TYPE: "application/senml+cbor"}
    some = [common | {p.USER_PROPERTY: [(IDENTITY_PROPERTY, f"0000a3f1/{i}/device")]} for i in range(1, 20)]
    packets = [Publish("a", b"1", 1, False, False, i, properties) for i, properties in enumerate(some, 1)]
    pieces = [Connect("c").encode(), b"".join(packet.encode(MQTT_5) for packet in packets)]
    events, sent, taken = hot(pieces, True)
    assert taken == 18
    assert (events, sent) == plain(pieces, True)
    assert [(message.origin, message.epoch, message.seq) for message, _ in events] == [
        ("device", 0xA3F1, i) for i in range(1, 20)
    ]


def test_what_routes_hand_on_goes_the_hot_path() -> None:
    def pairs(number: int) -> list[tuple[str, str]]:
        via = [(VIA_PROPERTY, encode_via(one, [(number, number)], gateway, "up")) for one, gateway in enumerate("nm")]
        identity = (IDENTITY_PROPERTY, f"0000a3f1/{number}/device")
        received = (RECEIVED_PROPERTY, f"{1700 + number}/n")
        return [
            ("site", "x"),
            (HOPS_PROPERTY, "00000001"),
            via[0],
            (HOPS_PROPERTY, "00000002"),
            identity,
            received,
            via[1],
        ]

    packets = [Publish("a", b"1", 1, False, False, i, {p.USER_PROPERTY: pairs(i)}) for i in range(1, 20)]
    pieces = [Connect("c").encode(), b"".join(packet.encode(MQTT_5) for packet in packets)]
    events, sent, taken = hot(pieces, True)
    assert taken == 18
    assert (events, sent) == plain(pieces, True)
    assert [(message.seq, message.received_ms, message.received_by) for message, _ in events] == [
        (i, 1700 + i, "n") for i in range(1, 20)
    ]


def test_a_packet_that_claims_to_be_large_waits_in_one_place_only(seed: int) -> None:
    pieces = [Connect("c").encode(), b"\x40\xff\xff\x03", b"x" * 1000]
    events, sent, _ = hot(pieces, True)
    assert (events, sent) == plain(pieces, True)
    assert "too large" in str(events).lower()


@pytest.mark.parametrize(("step", "is_alive"), [(1, False), (100, True)])
def test_the_beginning_of_a_packet_keeps_a_client_alive_only_where_it_is_much(step: int, is_alive: bool) -> None:
    protocol = BulkServerConnection(**LIMITS)
    application = Application(protocol, answers_at_once=True)
    inflow = BulkReader(protocol, application.topics, application.topics.origins)
    data = Connect("c", keep_alive_s=10).encode() + Publish("a", bytes(12_000), 1, packet_identifier=1).encode(MQTT_5)
    for second in range(60):
        piece = data[:60] if not second else data[60 + second * step :][:step]
        for _ in inflow.feed(piece, 1000 * second, lambda _: True):
            application.handle_events()
        protocol.handle_timer(1000 * second)
    assert protocol.connected == is_alive


def test_answers_are_cut_up_to_the_first_that_is_anything_else() -> None:
    for packet, packet_type in ((Puback, PUBACK), (Pubrec, PUBREC), (Pubrel, PUBREL), (Pubcomp, PUBCOMP)):
        some = b"".join(packet(i).encode(MQTT_5) for i in (7, 65_535, 256))
        for rest in (b"", b"\x40", b"\x40\x02\0", b"\x62\x02\0", b"\xc0\0", b"\x40\x03\0\x01\x10", b"\x62\x03\0\1\x92"):
            assert cut_acknowledgements(b"??" + some + rest, 2) == Acknowledgements(
                2 + len(some), packet_type, [7, 65_535, 256]
            )
    assert cut_acknowledgements(b"\x40\x02\0\x01\x40\x02\0\0", 0) == Acknowledgements(4, PUBACK, [1])

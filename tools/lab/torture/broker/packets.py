"""Random packets of every type and with every property that a client may send."""

from collections.abc import Callable
from typing import Any

from tools.lab.sim.virtual_line import Dice
from wire import properties as p
from wire.codec.packets import (
    MQTT_5,
    Auth,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Unsubscribe,
    Will,
    encode,
)

POOL_SIZE = 1500
TOPICS = [f"storm/{plant}/{sensor}" for plant in range(4) for sensor in range(8)] + [
    "storm",
    "/",
    "$storm/x",
    "é/\U0001f4a7",
]
FILTERS = [
    *TOPICS,
    "storm/#",
    "storm/+/1",
    "+/2/+",
    "#",
    "/#",
    "$storm/#",
    "$SYS/broker/uptime",
    "never/+",
    "storm/3/+",
]
LARGEST = 20_000  # bytes of a payload; the fast path takes smaller ones
SCRAM = "SCRAM-SHA-256"
FOR_EVER_S = 0xFFFF_FFFF
EXPIRIES_S = [0, 0, 0, 0, 1, 1, 60, FOR_EVER_S]  # longer sessions collect the storm

Maker = Callable[[Dice, int, int], Packet]


def chosen(dice: Dice, choices: list[Any]) -> Any:
    return choices[dice.roll(len(choices))]


def _some(dice: Dice, choices: dict[int, Callable[[], Any]]) -> dict[int, Any]:
    """Returns some of these properties, each with a chance of one in three."""
    return {key: make() for key, make in choices.items() if dice.roll(3) == 0}


def _pairs(dice: Dice) -> list[tuple[str, str]]:
    return [("hf-id", "0000002a/1/storm") if dice.roll(3) == 0 else ("a", "é") for _ in range(1 + dice.roll(3))]


def _payload(dice: Dice) -> bytes:
    if dice.roll(200) == 0:
        return bytes(dice.roll(LARGEST))
    return dice.bytes(dice.roll(20)) if dice.roll(3) else b"%d" % dice.roll(1000) * dice.roll(30)


def _message_properties(dice: Dice, is_will: bool = False) -> dict[int, Any]:
    choices: dict[int, Callable[[], Any]] = {
        p.PAYLOAD_FORMAT_INDICATOR: lambda: 0,
        p.MESSAGE_EXPIRY_INTERVAL: lambda: chosen(dice, [0, 1, 60, FOR_EVER_S]),
        p.CONTENT_TYPE: lambda: chosen(dice, ["", "text/plain"]),
        p.RESPONSE_TOPIC: lambda: chosen(dice, TOPICS),
        p.CORRELATION_DATA: lambda: dice.bytes(dice.roll(9)),
        p.USER_PROPERTY: lambda: _pairs(dice),
    }
    if is_will:
        choices[p.WILL_DELAY_INTERVAL] = lambda: chosen(dice, [0, 1, FOR_EVER_S])
    return _some(dice, choices)


def publish(dice: Dice, level: int, identifier: int) -> Publish:
    qos = dice.roll(3)
    properties = _message_properties(dice) if level == MQTT_5 and dice.roll(2) else {}
    topic = chosen(dice, TOPICS)
    if level == MQTT_5 and dice.roll(8) == 0:
        properties[p.TOPIC_ALIAS] = 1 + dice.roll(32)
    retain, dup = dice.roll(10) == 0, bool(qos) and dice.roll(10) == 0
    return Publish(topic, _payload(dice), qos, retain, dup, identifier if qos else None, properties)


def subscribe(dice: Dice, level: int, identifier: int) -> Subscribe:
    filters = []
    for _ in range(1 + dice.roll(3)):
        options, topic_filter = dice.roll(3), chosen(dice, FILTERS)
        if dice.roll(4) == 0:
            topic_filter = f"$share/group{dice.roll(3)}/{topic_filter}"
        elif level == MQTT_5:
            options |= dice.roll(2) << 2  # No Local may not be in a shared one
        if level == MQTT_5:
            options |= dice.roll(2) << 3 | dice.roll(3) << 4
        filters.append((topic_filter, options))
    known = {p.SUBSCRIPTION_IDENTIFIER: lambda: [1 + dice.roll(300)], p.USER_PROPERTY: lambda: _pairs(dice)}
    return Subscribe(identifier, filters, _some(dice, known) if level == MQTT_5 else {})


def unsubscribe(dice: Dice, level: int, identifier: int) -> Unsubscribe:
    properties = _some(dice, {p.USER_PROPERTY: lambda: _pairs(dice)}) if level == MQTT_5 else {}
    return Unsubscribe(identifier, [chosen(dice, FILTERS) for _ in range(1 + dice.roll(3))], properties)


def answer(dice: Dice, level: int, identifier: int) -> Packet:
    """Returns an acknowledgement of no packet: the broker's own packet identifiers begin at both ends."""
    identifier += 30_000
    kind = chosen(dice, [Puback, Pubrec, Pubrel, Pubcomp])
    if level != MQTT_5 or dice.roll(2):
        return kind(identifier)
    codes = [0, 0x92] if kind in (Pubrel, Pubcomp) else [0, 0x10, 0x80, 0x87, 0x97, 0x99]
    why = _some(dice, {p.REASON_STRING: lambda: "why", p.USER_PROPERTY: lambda: _pairs(dice)})
    return kind(identifier, chosen(dice, codes), why)


def ping(dice: Dice, level: int, identifier: int) -> Pingreq:
    return Pingreq()


def connect(dice: Dice, level: int, client_id: str) -> Connect:
    clean_start, properties = dice.roll(5) != 0, {}
    if level == MQTT_5:
        properties = _some(
            dice,
            {
                p.SESSION_EXPIRY_INTERVAL: lambda: chosen(dice, EXPIRIES_S),
                p.RECEIVE_MAXIMUM: lambda: chosen(dice, [1, 2, 20, 65_535]),
                p.MAXIMUM_PACKET_SIZE: lambda: chosen(dice, [20, 60, 1000, 100_000]),
                p.TOPIC_ALIAS_MAXIMUM: lambda: chosen(dice, [0, 1, 5, 65_535]),
                p.REQUEST_PROBLEM_INFORMATION: lambda: dice.roll(2),
                p.REQUEST_RESPONSE_INFORMATION: lambda: dice.roll(2),
                p.USER_PROPERTY: lambda: _pairs(dice),
            },
        )
    will = None
    if dice.roll(4) == 0:
        will_properties = _message_properties(dice, is_will=True) if level == MQTT_5 else {}
        will = Will(chosen(dice, TOPICS), _payload(dice)[:1000], dice.roll(3), dice.roll(4) == 0, will_properties)
    return Connect(client_id, clean_start, chosen(dice, [0, 60, 65_535]), None, None, will, properties, level)


def connect_by_scram(dice: Dice, client_id: str) -> list[bytes]:
    """Returns the packets of a login in two steps, which is always refused."""
    method = {p.AUTHENTICATION_METHOD: SCRAM}
    first = {**method, p.AUTHENTICATION_DATA: b"n,,n=storm,r=abc"}
    last = {**method, p.AUTHENTICATION_DATA: chosen(dice, [b"c=biws,r=abc,p=AAAA", b"", b"\xff"])}
    return [encode(Connect(client_id, True, 60, None, None, None, first)), encode(Auth(0x18, last))]


def disconnect(dice: Dice, level: int) -> bytes:
    if level != MQTT_5:
        return encode(Disconnect(), level)
    known = {p.REASON_STRING: lambda: "bye", p.USER_PROPERTY: lambda: _pairs(dice)}
    return encode(Disconnect(chosen(dice, [0, 0, 4, 0x81]), _some(dice, known)), level)


MAKERS: list[Maker] = [publish] * 24 + [subscribe] * 2 + [unsubscribe, answer, answer, ping]


class Pools:
    """Encoded packets to draw from, the same for the same seed; no packet identifier stands in two of a pool."""

    def __init__(self, seed: int) -> None:
        self._pools = {level: _pool(Dice(seed + level), level) for level in (4, 5)}
        self.floods = {level: _flood(level) for level in (4, 5)}

    def packets(self, dice: Dice, level: int, count: int) -> list[bytes]:
        """Returns ``count`` of the packets, each at most once."""
        pool = self._pools[level]
        start, step = dice.roll(POOL_SIZE), chosen(dice, STEPS)
        return [pool[(start + place * step) % POOL_SIZE] for place in range(count)]


STEPS = [1, 7, 11, 13, 17, 19, 23, 29]  # none divides POOL_SIZE
FLOOD_SIZE = 1000  # PUBLISHes in a row, which take the gateway's fast path


def _pool(dice: Dice, level: int) -> list[bytes]:
    return [encode(chosen(dice, MAKERS)(dice, level, 1 + number), level) for number in range(POOL_SIZE)]


def _flood(level: int) -> dict[int, bytes]:
    """Returns pools of packets by QoS."""
    return {qos: b"".join(_flood_packet(number, qos, level) for number in range(FLOOD_SIZE)) for qos in (1, 2)}


def _flood_packet(number: int, qos: int, level: int) -> bytes:
    return encode(Publish(f"flood/{number % 32}", b"flood %d" % number, qos, packet_identifier=1 + number), level)

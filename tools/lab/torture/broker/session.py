"""One malicious session: its packets, its line, and the manner in which it sends."""

from dataclasses import dataclass

from tools.lab.sim.virtual_line import Dice
from tools.lab.torture.broker.packets import Pools, chosen, connect, connect_by_scram, disconnect
from tools.lab.torture.wire import mqtt_noise
from wire.codec.packets import MQTT_3_1_1, MQTT_5, encode

LINES = ["tcp"] * 8 + ["unix"] * 4 + ["websocket"] * 3 + ["tls"] * 2 + ["mutual", "wss"]
NUMBERS = 1_000_000_000  # of one generator's sessions
SERIAL_FROM = NUMBERS // 2  # of these, those on the serial line
MANNERS = ["whole"] * 14 + ["pieces"] * 4 + ["slow", "cut", "deaf"]
RARE_MANNERS = ["half-open", "noise"]
RARE_EVERY = 40
CLIENTS = 64  # client identifiers in turn, so that earlier sessions are resumed
OWN_CLIENTS = ("mutual", "serial")  # lines with client identifiers of their own
SHARED_EVERY = 40
SHARED = "shared"


@dataclass(frozen=True)
class StormSession:
    """A session; the same for the same seed and number.

    ``packets`` begin with a CONNECT, which may be corrupt like the others. ``floods`` are the QoS of thousands of plain
    messages that follow a CONNECT that is not corrupt. ``manner``: "whole" in one write, "pieces", "slow" in bytes,
    "cut" off
    by a reset, "deaf" to all answers, "half-open" for ever before its CONNECT is whole, or "noise" in place of all.
    """

    number: int
    line: str
    level: int
    manner: str
    packets: list[bytes]
    floods: list[int]
    is_shared: bool = False

    @property
    def bytes(self) -> bytes:
        """All but the floods."""
        return b"".join(self.packets)


def client_of(line: str, number: int) -> str:
    """The client identifier of a session that shares it with sessions of the same generator alone."""
    client = number // NUMBERS * CLIENTS + number % CLIENTS
    return f"{line if line in OWN_CLIENTS else 'any'}-{client}"


def draw(pools: Pools, seed: int, number: int) -> StormSession:
    """The session with this number."""
    dice = Dice(seed * 1_000_003 + number * 2_654_435_761)
    line = "serial" if number % NUMBERS >= SERIAL_FROM else chosen(dice, LINES)
    level = MQTT_5 if dice.roll(3) else MQTT_3_1_1
    manner = chosen(dice, MANNERS if dice.roll(RARE_EVERY) or line == "serial" else RARE_MANNERS)
    is_shared = dice.roll(SHARED_EVERY) == 0 and line not in OWN_CLIENTS  # whose sessions belong to their users
    client_id = SHARED if is_shared else client_of(line, number)
    if level == MQTT_5 and dice.roll(100) == 0:
        packets = connect_by_scram(dice, client_id)
    else:
        packets = [encode(connect(dice, level, client_id))]
    if manner == "noise":
        return StormSession(number, line, level, manner, [dice.bytes(1 + dice.roll(400))], [])
    packets += pools.packets(dice, level, 5 + dice.roll(120))
    if dice.roll(2):
        packets.append(disconnect(dice, level))
    floods = [1 + dice.roll(2) for _ in range(1 + dice.roll(6))] if dice.roll(2) and line != "serial" else []
    if dice.roll(4):
        head = 1 if floods else 0
        packets = packets[:head] + mutated(dice, packets[head:], mqtt_noise.SAMPLES[chosen(dice, [4, 5])])
    return StormSession(number, line, level, manner, packets, floods, is_shared)


def mutated(dice: Dice, packets: list[bytes], foreign: list[bytes]) -> list[bytes]:
    """Returns the packets with a few changes, mostly to later ones, because the broker ends most changed sessions."""
    packets = list(packets)
    for _ in range(1 + dice.roll(3)):
        at = max(dice.roll(len(packets)), dice.roll(len(packets)))
        packets[at : at + 1] = _changed(dice, packets[at], chosen(dice, packets), chosen(dice, foreign))
    return packets


def _changed(dice: Dice, packet: bytes, other: bytes, foreign: bytes) -> list[bytes]:
    """Returns one packet, changed."""
    what = dice.roll(8)
    if what == 0:
        return [packet[: dice.roll(len(packet) + 1)]]  # cut
    if what == 1:
        return [packet, packet]
    if what == 2:
        return [other, packet]  # out of order
    if what == 3:
        return [packet[:1] + bytes((dice.roll(256),)) + packet[2:]]  # another length
    if what == 4:
        return [packet, foreign]  # of another session
    if what == 5:
        return [packet, dice.bytes(1 + dice.roll(20))]
    return [mqtt_noise.spoil(dice, packet)]

"""What a gateway's store is asked to write, drawn from a seed, and what it must hold after each step."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate, count

from gateway.message import Message
from gateway.store import PublishBatch, Work, qos2, retained, wills
from wire.codec.packets import MQTT_3_1_1, Publish

SESSIONS = ("pump", "valve")
TOPICS = ("a", "b/c", "b/d")
PAYLOAD_SIZE_MAX = 6000  # more than a page
RUN_MAX = 40


@dataclass(frozen=True)
class State:
    """``messages`` are their number; the other three are what is there besides."""

    messages: int = 0
    incoming: frozenset[tuple[str, int]] = frozenset()
    retained: frozenset[tuple[str, int]] = frozenset()
    wills: frozenset[tuple[str, int]] = frozenset()


@dataclass
class Step:
    """One group for the log: all of it is there after a cut, or nothing. ``numbers`` are its messages' numbers."""

    work: list[Work] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    changes: dict[str, frozenset[tuple[str, int]]] = field(default_factory=dict)


def steps(seed: int) -> Iterator[Step]:
    """Yields steps without end, the same for the same seed."""
    dice = random.Random(seed)
    numbers = count(1)
    state = State()
    while True:
        step = dice.choice((_messages, _messages, _run, _received, _released, _retained, _will))(dice, numbers, state)
        state = after(state, step)
        yield step


def after(state: State, step: Step) -> State:
    """What is there once a step was written, too."""
    kept = {"incoming": state.incoming, "retained": state.retained, "wills": state.wills}
    return State(state.messages + len(step.numbers), **{**kept, **step.changes})


def states(seed: int, length: int) -> list[State]:
    """What is there after each of the first steps, that before them first."""
    found = steps(seed)
    return list(accumulate((next(found) for _ in range(length)), after, initial=State()))


def topics(seed: int, length: int) -> dict[int, str]:
    """The topic of each message of the first steps, by its number."""
    found = steps(seed)
    parts = [part for _ in range(length) for part in next(found).work if isinstance(part, Message | PublishBatch)]
    return {number_of(message.payload): message.topic for part in parts for message in part.messages()}


def number_of(payload: bytes) -> int:
    """Returns the number of the message that has a payload."""
    return int(payload.split(b" ", 1)[0])


def _messages(dice: random.Random, numbers: Iterator[int], _: State) -> Step:
    own = [next(numbers) for _ in range(dice.randint(1, 4))]
    return Step([_message(dice, number) for number in own], own)


def _run(dice: random.Random, numbers: Iterator[int], _: State) -> Step:
    own = [next(numbers) for _ in range(dice.randint(1, RUN_MAX))]
    topic = dice.choice(TOPICS)
    packets = [Publish(topic, b"%d " % number, 1, packet_identifier=number % 65535 + 1) for number in own]
    together = b"".join(packet.encode(MQTT_3_1_1) for packet in packets)
    return Step([PublishBatch(together, {topic: None}, len(own), MQTT_3_1_1, "pump", 1, "gw")], own)


def _received(dice: random.Random, numbers: Iterator[int], state: State) -> Step:
    """A QoS 2 message and its packet identifier."""
    session, identifier, number = dice.choice(SESSIONS), dice.randint(1, 50), next(numbers)
    work: list[Work] = [_message(dice, number), qos2.note_incoming(session, [identifier])]
    return Step(work, [number], {"incoming": state.incoming | {(session, identifier)}})


def _released(dice: random.Random, _: Iterator[int], state: State) -> Step:
    session = dice.choice(SESSIONS)
    own = [identifier for name, identifier in sorted(state.incoming) if name == session][: dice.randint(1, 3)]
    gone = {(session, identifier) for identifier in own}
    return Step([qos2.release_incoming(session, own)], [], {"incoming": state.incoming - gone})


def _retained(dice: random.Random, numbers: Iterator[int], state: State) -> Step:
    """A retained message, or one that clears its topic."""
    topic, number = dice.choice(TOPICS), next(numbers)
    message = Message(topic, _payload(dice, number), retain=True)
    others = frozenset(one for one in state.retained if one[0] != topic)
    return Step([message, retained.Keep(message)], [number], {"retained": others | {(topic, number)}})


def _will(dice: random.Random, _: Iterator[int], state: State) -> Step:
    session, delay_s = dice.choice(SESSIONS), dice.randint(0, 9)
    others = frozenset(one for one in state.wills if one[0] != session)
    if dice.random() < 0.3:
        return Step([wills.remove(session)], [], {"wills": others})
    will = wills.StoredWill(session, None, Publish("gone", b"x" * PAYLOAD_SIZE_MAX), delay_s)
    return Step([wills.save(will)], [], {"wills": others | {(session, delay_s)}})


def _message(dice: random.Random, number: int) -> Message:
    return Message(dice.choice(TOPICS), _payload(dice, number))


def _payload(dice: random.Random, number: int) -> bytes:
    return b"%d " % number + b"x" * dice.choice((0, 10, 100, PAYLOAD_SIZE_MAX))

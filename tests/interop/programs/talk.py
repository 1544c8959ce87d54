"""The firmware in one conversation with a broker: SCENARIO CONFIG; a line that begins with `> ` is what it found."""
# mypy: ignore-errors

import json
import sys

from device.config import load
from device.main import make
from flash_store.incoming import Incoming
from wire.packet_types import PUBREL, SUBACK

TURN_MS = 50
scenario, config_path = sys.argv[1:]
received: list = []  # [topic, number] of each message, in the order in which they were acted on


def say(value) -> None:
    print("> " + json.dumps(value))


def on_message(topic: str, payload: bytes) -> dict:
    received.append([topic, int(payload)])
    if witness is not None:
        witness.note(int(payload))
    return {"took": int(payload)}


class Witness:
    """Stands before a device's inbox.

    `seen` has [number, packet identifier] of each message of QoS 2 that was acted on, and [identifier] of each PUBREL.
    """

    def __init__(self, device) -> None:
        self.seen: list = []
        self.is_subscribed = False
        self._inbox = device._session.inbox
        device._session.inbox = self

    def __getattr__(self, name: str):
        return getattr(self._inbox, name)

    def handle_packet(self, packet) -> None:
        if packet.TYPE == PUBREL:
            self.seen.append([packet.packet_identifier])
        self._inbox.handle_packet(packet)

    def note(self, number: int) -> None:
        if self._inbox._kept is not None:
            self.seen.append([number, self._inbox._kept.identifier])

    def handle_answer(self, answer) -> None:
        self.is_subscribed = answer.TYPE == SUBACK
        self._inbox.handle_answer(answer)


witness: Witness | None = None
device = make(load(config_path), on_message)


def run_until(done) -> None:
    while not done():
        device.advance(TURN_MS)


def is_delivered() -> bool:
    return device.connects > 0 and not len(device.log)


def is_taken() -> bool:
    """Whether every received message is finished, and the store is empty."""
    return not len(device.log) and not Incoming(device.log.settings).identifiers


def subscribe() -> None:
    global witness
    witness = Witness(device)
    run_until(lambda: witness.is_subscribed)
    say("subscribed")


def publish() -> None:
    """Twenty messages of each QoS."""
    run_until(lambda: device.connects)
    for number in range(60):
        device.publish(f"up/{number % 3}", b"%d" % number, number % 3)
        device.advance(0)
    run_until(is_delivered)


def echo() -> None:
    """Receives twenty messages of each QoS, and prints them."""
    subscribe()
    run_until(lambda: len(received) >= 60 and is_taken())
    say(received)


def resume() -> None:
    """Sends and receives while the broker stops and starts again."""
    subscribe()
    made = 0

    def is_finished() -> bool:
        nonlocal made
        if made < 120 and len(device.log) < 30:
            made += 1
            device.publish("up/2", b"%d" % made, 2)
        return made == 120 and len({number for _, number in received}) >= 40 and is_taken()

    run_until(is_finished)
    say(witness.seen)


def will() -> None:
    """Ends without a DISCONNECT."""
    run_until(lambda: device.connects)
    say("connected")
    sys.exit(0)


def retained() -> None:
    """Publishes a retained message. It ignores a stored retained message and acts on a new one."""
    device.publish("kept/device", b"7", 2, True)
    subscribe()
    run_until(lambda: received and is_taken())
    say(received)


globals()[scenario]()
device.close()

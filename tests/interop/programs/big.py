"""64 KB back and forth, CONFIG: larger than a sector of flash, so that they live in RAM, over the device's own port."""
# mypy: ignore-errors

import json
import select
import sys

from device.assembly import make_port
from device.boards import board
from device.config import load
from device.ports import Up
from device.watchdog import NoWatchdog
from wire.codec.connect import Connect
from wire.connection.client import ClientConnection
from wire.packet_types import CONNACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, SUBACK
from wire.properties import RECEIVE_MAXIMUM

BIG = 65_536
COUNT = 4
TURN_MS = 1000

config = load(sys.argv[1])
poller = select.poll()
port = make_port(config.ports[0], poller, 1, board, NoWatchdog())
connection = ClientConnection(
    Connect("device", False, 60, properties={RECEIVE_MAXIMUM: 1}, protocol_level=config.protocol_level)
)
uptime = board.Uptime()
came = sent = returned = 0
waiting: list = []  # payloads, until the one before has its PUBCOMP


def say(value) -> None:
    print("> " + json.dumps(value))


def take(payload: bytes) -> None:
    global came
    assert payload == bytes([came]) * BIG, came
    came += 1
    waiting.append(payload)


def send_back() -> None:
    global sent
    if waiting and sent == returned:
        sent += 1
        say(connection.send_quota)
        connection.publish("up/2", waiting.pop(0), qos=2, packet_identifier=sent)


def handle(event) -> None:
    global returned
    if event.TYPE == CONNACK:
        connection.subscribe([("down/#", 2)])
    elif event.TYPE == SUBACK:
        say("subscribed")
    elif event.TYPE == PUBLISH:
        connection.pubrec(event.packet_identifier)
        take(event.payload)
    elif event.TYPE == PUBREC:
        connection.pubrel(event.packet_identifier)
    elif event.TYPE == PUBREL:
        connection.pubcomp(event.packet_identifier)
    elif event.TYPE == PUBCOMP:
        returned += 1


def turn() -> None:
    found = poller.poll(TURN_MS)
    now_ms = uptime.now_ms()
    port.advance(found[0][1] if found else 0, now_ms)
    while (event := port.next_event()) is not None:
        if isinstance(event, Up):
            connection.connect(now_ms)
        else:
            connection.receive_data(event, now_ms)
    connection.handle_timer(now_ms)
    while (event := connection.next_event()) is not None:
        handle(event)
    send_back()
    data = connection.data_to_send()
    if data:
        port.send(data, now_ms)


port.open(0)
while returned < COUNT:
    turn()
connection.disconnect()
port.send(connection.data_to_send(), uptime.now_ms())
port.close()

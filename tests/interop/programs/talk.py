"""One conversation with a real broker: SCENARIO PORT LEVEL FLASH, and a CA certificate where it is over TLS.

Prints what it got, a JSON value a line.
"""
# mypy: ignore-errors
# Its sockets and clock are MicroPython's.

import json
import sys

from tests.interop.programs.durable_client import DurableClient, open_log
from wire.codec.connect import Will

scenario, port, level, flash_path = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
BIG = 65_536


def say(value) -> None:
    print(json.dumps(value))


def secure(ca_path: str):
    import tls

    context = tls.SSLContext(tls.PROTOCOL_TLS_CLIENT)
    context.verify_mode = tls.CERT_REQUIRED
    with open(ca_path, "rb") as file:
        context.load_verify_locations(file.read())
    return lambda stream: context.wrap_socket(stream, server_hostname="localhost")


def client(**options) -> DurableClient:
    options["protocol_level"] = level
    tls = secure(sys.argv[5]) if len(sys.argv) > 5 else None
    return DurableClient(port, "device", open_log(flash_path), options, tls)


def publish() -> None:
    """Twenty messages of each QoS, in one order."""
    log = open_log(flash_path)
    for number in range(60):
        log.append(f"up/{number % 3}", b"%d" % number, number % 3)
    device = client()
    device.run_until(device.everything_is_delivered)
    say(device.sessions)
    device.leave()


def echo() -> None:
    """Takes twenty messages at each QoS and says what came."""
    device = client()
    device.subscribe("down/#", 2)
    say("subscribed")
    device.run_until(lambda: len(device.received) >= 60)
    for message in device.received:
        say([message.qos, message.retain, int(message.payload)])
    device.run_until(lambda: not open_log_of(device).remembered())
    device.leave()


def open_log_of(device):
    return device._log


def resume() -> None:
    """Sends and takes on while the broker goes and comes back: until it was told to stop."""
    device = client()
    log = open_log_of(device)
    device.subscribe("down/#", 2)
    say("subscribed")
    made = 0

    def turn() -> bool:
        nonlocal made
        if made < 120 and len(log) < 30:
            made += 1
            log.append("up/2", b"%d" % made, 2)
        finished = made == 120 and len(log) == 0 and len(device.received) >= 40
        return finished and not log.remembered()

    device.run_until(turn)
    say(device.sessions)
    say([[int(message.payload), message.packet_identifier, message.dup] for message in device.received])
    say(device.releases)
    device.leave()


def will() -> None:
    """Is gone without a word."""
    device = client(will=Will("will/device", b"gone", 2, True))
    device.run_until(device.connected)
    say("connected")
    device._socket.close()


def retained() -> None:
    """Leaves a retained message, and gets it as a newcomer does."""
    device = client()
    log = open_log_of(device)
    log.append("kept/device", b"7", 2, True)
    device.run_until(device.everything_is_delivered)
    device.subscribe("kept/#", 2)
    device.run_until(lambda: device.received)
    say([[m.topic, m.qos, m.retain, int(m.payload)] for m in device.received])
    device.leave()


def big() -> None:
    """64 KB, one at a time each way: larger than a sector of flash, so that they live in RAM."""
    device = client(receive_maximum=1)
    device.subscribe("down/#", 2)
    say("subscribed")
    waits_for = None
    for number in range(4):
        device.run_until(lambda: len(device.received) > number)  # noqa: B023
        payload = device.received[number].payload
        assert payload == bytes([number]) * BIG, number
        device.received[number] = None
        quota = device.connection.send_quota
        waits_for = device.connection.publish("up/2", payload, qos=2, packet_identifier=number + 1)
        device._on_the_way[waits_for] = number + 1
        device.run_until(lambda: waits_for not in device._on_the_way)  # noqa: B023
        say(quota)
    device.leave()


globals()[scenario]()

"""Messages from flash to a broker in the same VM: MESSAGES QOS; prints the heap in use, as a JSON list."""

import gc
import json
import sys

from device.publisher import Publisher
from flash_store.devices.ram import RamFlash
from flash_store.log import Log
from wire.client import ClientConnection
from wire.packet_types import PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL
from wire.packets import Connect
from wire.server import ServerConnection

LOOKS = 10


def run(count: int, qos: int) -> list:
    """Returns the bytes in use after each tenth of the messages."""
    flash = RamFlash(sector_count=16)
    Log.format(flash, 1)
    log = Log(flash)
    publisher = Publisher(log, "soak", print)
    client, server = ClientConnection("soak"), ServerConnection(receive_maximum=8)
    client.connect(0)
    used = []
    acknowledged = 0
    while acknowledged < count:
        while len(log) < 8:
            log.append("telemetry/soak", b"x" * 100, qos)
        before = acknowledged
        while acknowledged == before:
            while publisher.fill(acknowledged):
                pass
            serve(client, server)
            acknowledged += hear(client, publisher, acknowledged)
        publisher.handle_timer(acknowledged)
        log.idle()
        if acknowledged * LOOKS // count > before * LOOKS // count:
            gc.collect()
            used.append(gc.mem_alloc())  # type: ignore[attr-defined]
    return used


def serve(client, server) -> None:
    server.receive_data(client.data_to_send(), 0)
    while (event := server.next_event()) is not None:
        if isinstance(event, Connect):
            server.accept(False)
        elif event.TYPE == PUBLISH and event.qos == 1:
            server.puback(event.packet_identifier)
        elif event.TYPE == PUBLISH:
            server.pubrec(event.packet_identifier)
        elif event.TYPE == PUBREL:
            server.pubcomp(event.packet_identifier)
    client.receive_data(server.data_to_send(), 0)


def hear(client, publisher, now_ms: int) -> int:
    """Returns how many messages are acknowledged."""
    done = 0
    while (event := client.next_event()) is not None:
        if event.TYPE == PUBACK:
            publisher.handle_puback(event, now_ms)
            done += 1
        elif event.TYPE == PUBREC:
            publisher.handle_pubrec(event, now_ms)
        elif event.TYPE == PUBCOMP:
            publisher.handle_pubcomp(event, now_ms)
            done += 1
        else:
            publisher.attach(client, event.session_present)
    return done


print(json.dumps(run(int(sys.argv[1]), int(sys.argv[2]))))

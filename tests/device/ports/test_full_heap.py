"""A heap that is full as a port takes bytes: the connection ends, and the device goes on."""

import asyncio
import socket
import subprocess

from tests.device.ports.test_uart import serial_line
from tests.device.serial_bridge import serial_bridge
from tests.support.scripted_broker import scripted_broker
from tools.lab.micropython import MicroPython

PROGRAM = """
import select, sys, time
from device.ports import Up
from device.watchdog import NoWatchdog
poller = select.poll()
if sys.argv[1] == "tcp":
    from device.ports.tcp import Tcp
    port = Tcp("127.0.0.1", int(sys.argv[2]), poller, NoWatchdog())
else:
    from device.ports.uart import Uart
    port = Uart(sys.argv[2], 115_200, poller, 1)
port.open(time.ticks_ms())
while not isinstance(port.next_event(), Up):
    found = poller.poll(100)
    port.advance(found[0][1] if found else 0, time.ticks_ms())
message = bytes(4096)
while port.has_room:
    port.send(message, time.ticks_ms())
hoard = []
try:
    while True:
        hoard.append(bytearray(1024))
except MemoryError:
    pass
port.send(message, time.ticks_ms())
hoard = None
event = port.next_event()
print(type(event).__name__, event.text)
port.close()
"""


def run(vm: MicroPython, kind: str, where: str) -> str:
    command = [*vm.argv, "-X", "heapsize=512k", "-c", PROGRAM, kind, where]
    done = subprocess.run(command, env=vm.environment(), capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


async def test_tcp_connection_ends_where_the_heap_has_no_room_for_what_it_is_to_send(micropython: MicroPython) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        said = await asyncio.to_thread(run, micropython, "tcp", str(server.getsockname()[1]))
    assert said.startswith("Down memory allocation failed"), said


async def test_serial_link_ends_where_the_heap_has_no_room_for_what_it_is_to_send(micropython: MicroPython) -> None:
    async with serial_line() as line, scripted_broker() as broker, serial_bridge(line.far, broker.port):
        said = await asyncio.to_thread(run, micropython, "uart", line.near)
    assert said.startswith("Down memory allocation failed"), said

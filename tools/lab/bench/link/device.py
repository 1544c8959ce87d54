"""The device's end of the serial link, for the real VM: PATH BAUD BYTES_TO_SEND BYTES_TO_EXPECT ERASES.

Runs the firmware's own port until it is killed. Says on standard output what happens: `up`, `erase MS LOST` (the wait
for silence, and the bytes that went by unheard), and `received BYTES` once all has come.
"""

import io
import select
import sys
import time

from device.boards import unix as board
from device.ports import Up
from device.ports.uart import Uart
from tools.lab.bench.link.stream import Check, piece

ERASE_MS = 400

path = sys.argv[1]
baud, to_send, to_expect, erases = map(int, sys.argv[2:])
uptime = board.Uptime()
poller = select.poll()
port = Uart(path, baud, poller, board.random_u32())
port.open(uptime.now_ms())
check = Check()
done = False
erased = 0
erasing_since_ms = None
heard: list = []  # the line, after its first bytes
ready = 0


def erase(line: io.FileIO) -> int:
    """Reads nothing for a while, like a board that erases its flash; returns how many bytes were lost."""
    time.sleep_ms(ERASE_MS)  # type: ignore[attr-defined]
    lost = 0
    only_this = select.poll()
    only_this.register(line, select.POLLIN)
    while only_this.poll(0):
        lost += len(line.read(4096))
    return lost


while True:
    now_ms = uptime.now_ms()
    port.advance(ready, now_ms)
    while (event := port.next_event()) is not None:
        if isinstance(event, bytes):
            check.take(event)
        elif isinstance(event, Up):
            print("up")
            check = Check()
            port.send(piece(0, to_send), now_ms)
    if erased < erases and check.total > (erased + 1) * to_expect // (erases + 2):
        erasing_since_ms = now_ms if erasing_since_ms is None else erasing_since_ms
        if port.pause(now_ms):
            print("erase", now_ms - erasing_since_ms, erase(heard[0]))
            port.resume(uptime.now_ms())
            erased += 1
            erasing_since_ms = None
    if check.total == to_expect and not done:
        done = True
        print("received", check.total)
    timer_ms = port.next_timer_ms()
    found = poller.poll(-1 if timer_ms is None else max(0, timer_ms - uptime.now_ms()))
    ready = found[0][1] if found else 0
    if found:
        heard[:] = [found[0][0]]

"""The firmware on a real MicroPython under a flood of messages: CONFIG MESSAGES. Prints the heap in use, as JSON.

They are of QoS 1 and 2 by turns, and go through flash to the broker; twice a window of them is there at any time, so
that the device never waits for more.
"""

import gc
import json
import sys

from device import main
from device.config import load

LOOKS = 10
AT_ONCE = 16

config_path, count = sys.argv[1], int(sys.argv[2])
used = [0] * LOOKS  # made beforehand: it shall not be what grows
device = main.make(load(config_path))
payload = bytes(100)
for look in range(LOOKS):
    goal = count * (look + 1) // LOOKS
    while device.log.last_id < goal or len(device.log):
        while device.log.last_id < goal and len(device.log) < AT_ONCE:
            device.publish(device.config.topic, payload, 1 + device.log.last_id % 2)
        device.advance()
    gc.collect()
    used[look] = gc.mem_alloc()  # type: ignore[attr-defined]
print(json.dumps(used))

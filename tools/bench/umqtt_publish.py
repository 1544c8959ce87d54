"""umqtt.robust sends COUNT messages of SIZE bytes at QoS 1, each acknowledged before the next: PORT COUNT SIZE.

Runs on the real MicroPython VM. Nothing is stored.
"""

import sys

from umqtt.robust import MQTTClient  # type: ignore[import-not-found]

port, count, size = map(int, sys.argv[1:])
client = MQTTClient("umqtt", "127.0.0.1", port)
client.connect()
payload = b"p" * size
for _ in range(count):
    client.publish(b"bench/umqtt", payload, qos=1)
client.disconnect()

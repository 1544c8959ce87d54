"""The device's status messages: `online` after connecting, `offline` before disconnecting, `lost` by its will.

They are JSON at QoS 1, the same as the will. Routes forward QoS 1, so a broker behind a route does not keep an outdated
status. The device never resends a status message: each replaces the one before, and each connection begins with one.
"""

import json

from wire.codec.connect import Will
from wire.errors import WireError

ONLINE, OFFLINE, LOST = "online", "offline", "lost"


class Status:
    """Args:
    config: `device.config.Config`, whose `status` names the topic.
    facts: called for further keys and values (that JSON can hold) of each `online` message.
    """

    def __init__(self, config, facts) -> None:
        self._topic = config.status.topic
        self._retain = config.status.retain
        self._facts = facts

    def will(self) -> Will:
        return Will(self._topic, _encode(LOST, {}), 1, self._retain)

    def say_online(self, connection) -> None:
        self._say(connection, _encode(ONLINE, self._facts()))

    def say_offline(self, connection) -> None:
        self._say(connection, _encode(OFFLINE, {}))

    def _say(self, connection, payload: bytes) -> None:
        try:
            connection.publish(self._topic, payload, qos=min(1, connection.maximum_qos_peer), retain=self._retain)
        except WireError:
            pass  # a broker without retained messages has refused a retained will before, at CONNECT


def _encode(status: str, facts: dict) -> bytes:
    told = {"status": status}
    told.update(facts)
    return json.dumps(told).encode()

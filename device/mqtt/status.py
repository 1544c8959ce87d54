"""Whether the device is there: said by itself at the start and the end of each connection, else by its will.

Messages of QoS 1 in JSON, as the will is: a route takes them, so that a broker behind it does not keep an old one. Each
supersedes the one before, so that none is sent again: the next connection says it anew.
"""

import json

from wire.codec.connect import Will
from wire.errors import WireError

ONLINE, OFFLINE, LOST = "online", "offline", "lost"


class Status:
    """Args:
    config: `device.config.Config`, whose `status` names the topic.
    facts: what `online` says besides: keys and values that JSON can hold.
    """

    def __init__(self, config, facts: dict) -> None:
        self._topic = config.status.topic
        self._retain = config.status.retain
        self._facts = facts

    def will(self) -> Will:
        return Will(self._topic, _encode(LOST, {}), 1, self._retain)

    def say_online(self, connection) -> None:
        self._say(connection, _encode(ONLINE, self._facts))

    def say_offline(self, connection) -> None:
        self._say(connection, _encode(OFFLINE, {}))

    def _say(self, connection, payload: bytes) -> None:
        try:
            connection.publish(self._topic, payload, qos=min(1, connection.maximum_qos_peer), retain=self._retain)
        except WireError:
            pass  # a broker that keeps no messages refuses a will that is to be kept, and says so


def _encode(status: str, facts: dict) -> bytes:
    told = {"status": status}
    told.update(facts)
    return json.dumps(told).encode()

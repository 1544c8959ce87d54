"""QoS 0: messages that are kept in RAM only, on a device whose configuration chooses QoS 0."""

QUEUE_MAX = 8


class Qos0Queue:
    """The newest messages that wait for a connection; `dropped` counts the messages that were discarded."""

    def __init__(self) -> None:
        self._queue: list = []
        self.dropped = 0

    def add(self, topic: str, payload: bytes, retain: bool = False) -> None:
        """Adds a message; a full queue discards its oldest one first."""
        if len(self._queue) >= QUEUE_MAX:
            self._queue.pop(0)
            self.dropped += 1
        self._queue.append((topic, payload, retain))

    def take(self) -> tuple | None:
        """Removes and returns the oldest message as (topic, payload, retain); None if the queue is empty."""
        return self._queue.pop(0) if self._queue else None

"""QoS 0: messages that stay in RAM by choice, for a device that uses them."""

QUEUE_MAX = 8


class Unstored:
    """Messages that wait for a connection, the newest few of them; `dropped` counts the others."""

    def __init__(self) -> None:
        self._queue: list = []
        self.dropped = 0

    def add(self, topic: str, payload: bytes, retain: bool = False) -> None:
        """In place of the oldest one where the queue is full."""
        if len(self._queue) >= QUEUE_MAX:
            self._queue.pop(0)
            self.dropped += 1
        self._queue.append((topic, payload, retain))

    def take(self) -> tuple | None:
        """The oldest (topic, payload, retain), None when there is none."""
        return self._queue.pop(0) if self._queue else None

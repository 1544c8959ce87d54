"""The newest messages of the log, in memory: consumers that keep up never wait for the disk."""

from gateway.message import Message

TAIL_MESSAGES_MAX = 4096
TAIL_BYTES_MAX = 4 * 1024 * 1024


class Tail:
    """A bounded run of messages at consecutive positions, the newest ones."""

    def __init__(self) -> None:
        self._messages: dict[int, Message] = {}
        self._bytes = 0
        self._oldest = 1
        self._newest = 0

    def add(self, position: int, message: Message) -> None:
        """Adds the message that was stored last."""
        if position != self._newest + 1:
            self._messages.clear()
            self._bytes = 0
            self._oldest = position
        self._messages[position] = message
        self._newest = position
        self._bytes += message.size
        while len(self._messages) > TAIL_MESSAGES_MAX or self._bytes > TAIL_BYTES_MAX:
            self._bytes -= self._messages.pop(self._oldest).size
            self._oldest += 1

    def read(self, after: int, limit: int) -> list[tuple[int, Message]] | None:
        """Returns up to ``limit`` messages behind a position, or None where it does not reach back so far."""
        if not self._messages or after + 1 < self._oldest:
            return None
        end = min(after + limit, self._newest)
        return [(position, self._messages[position]) for position in range(after + 1, end + 1)]

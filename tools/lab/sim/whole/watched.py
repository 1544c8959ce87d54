"""What a simulated board shows of itself, and waiting for it."""

import threading
from collections.abc import Callable

DEADLINE_S = 30.0
KEPT_BYTES = 64 * 1024


class Watched:
    """What was seen of a board. Its methods can be called from any thread.

    Attributes:
        printed: the last bytes that the board has sent since its last start.
        starts: how often it has started since it was made, of whatever.
    """

    def __init__(self) -> None:
        self.printed = b""
        self.starts = 0
        self._state = ""
        self._news = threading.Condition()

    def wait_for(self, state: str, deadline_s: float = DEADLINE_S) -> None:
        """Waits until the board is in this state: `loader`, `program`, `off`, or `nothing` where it cannot start.

        Raises TimeoutError.
        """
        self._wait(lambda: self._state == state, f"the board is in state {state!r}", deadline_s)

    def wait_printed(self, text: bytes, deadline_s: float = DEADLINE_S) -> None:
        """Waits until the board has sent this. Raises TimeoutError."""
        self._wait(lambda: text in self.printed, f"the board prints {text!r}", deadline_s)

    def wait_started(self, starts: int, deadline_s: float = DEADLINE_S) -> None:
        """Waits until the board has started so often. Raises TimeoutError."""
        self._wait(lambda: self.starts >= starts, f"start {starts}", deadline_s)

    def enter(self, state: str) -> None:
        """Notes what the board does now."""
        with self._news:
            self._state = state
            self._news.notify_all()

    def note_start(self) -> None:
        """Notes a start."""
        with self._news:
            self.printed = b""
            self.starts += 1
            self._news.notify_all()

    def note_sent(self, content: bytes) -> None:
        """Notes what the board has sent."""
        with self._news:
            self.printed = (self.printed + content)[-KEPT_BYTES:]
            self._news.notify_all()

    def _wait(self, condition: Callable[[], bool], what: str, deadline_s: float) -> None:
        with self._news:
            if not self._news.wait_for(condition, deadline_s):
                raise TimeoutError(f"not within {deadline_s:g} s: {what}; it printed {self.printed[-400:]!r}")

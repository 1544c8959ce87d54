"""When a device that lives on a battery connects, and when it sleeps: decisions alone, without a board.

It wakes for each sample, stores it, and sleeps again. Each n-th time, and whenever the store fills, it connects, sends
all that the store holds, and then sleeps. Where that comes to nothing it tries less and less often.
"""

SAMPLING, SENDING, ASLEEP = "sampling", "sending", "asleep"
BACKOFF_MAX = 8  # times as many samples until the next attempt, after three that came to nothing
SECTOR_BYTES, RESERVED = 4096, 4  # of the store; so many sectors are for erasing ahead, and half used
RECORD_BYTES = 32  # of a message on flash, besides topic and payload
SHORTEST_SLEEP_MS = 1_000  # waking takes about as long


class Duty:
    """One time awake.

    Args:
        connect_every: samples to a connection.
        awake_ms: the longest that one attempt to connect and send may take.
        samples: how many times it has woken since the last attempt; None after a power cut: it connects at once, so
            that whoever installs it sees that it can, and it learns what time it is.
        failures: attempts in a row in which nothing was sent.
    """

    def __init__(self, connect_every: int, awake_ms: int, samples: int | None = None, failures: int = 0) -> None:
        self._connect_every = connect_every
        self._awake_ms = awake_ms
        self.samples = connect_every if samples is None else samples
        self.failures = failures
        self.phase = SAMPLING
        self._until_ms = 0  # of sending
        self._waiting = 0  # messages when sending began

    def advance(self, now_ms: int, has_sampled: bool, waiting: int, is_filling: bool) -> str:
        """To be called at each turn of the loop; returns the phase: with SENDING the device wants its connection, with
        ASLEEP it is to sleep, and `samples` and `failures` are to be kept.

        Args:
            has_sampled: whether this time's readings were stored.
            waiting: messages in the store.
            is_filling: whether the store had better be emptied.
        """
        if self.phase == SAMPLING and has_sampled:
            self.samples += 1
            if waiting and self._is_due(is_filling):
                self.phase = SENDING
                self._until_ms = now_ms + self._awake_ms
                self._waiting = waiting
            else:
                self.phase = ASLEEP
        elif self.phase == SENDING and (not waiting or now_ms >= self._until_ms):
            self._end(waiting)
        return self.phase

    def next_timer_ms(self) -> int | None:
        """When `advance` wants to be called, in the time of `now_ms`."""
        return self._until_ms if self.phase == SENDING else None

    def _is_due(self, is_filling: bool) -> bool:
        needed = 1 if is_filling else self._connect_every
        return self.samples >= needed * min(1 << self.failures, BACKOFF_MAX)

    def _end(self, waiting: int) -> None:
        self.phase = ASLEEP
        if not waiting:
            self.samples = self.failures = 0
        elif waiting < self._waiting:  # it goes on next time
            self.samples, self.failures = self._connect_every, 0
        else:
            self.samples = 0
            self.failures = min(self.failures + 1, BACKOFF_MAX)


def is_filling(waiting: int, message_bytes: int, sector_count: int) -> bool:
    """Whether three quarters of a store of so many sectors hold messages that wait, each as large as that.

    Free sectors do not tell: the store erases what was sent as late as it can.
    """
    return 4 * waiting * (message_bytes + RECORD_BYTES) > 3 * SECTOR_BYTES * max(1, sector_count - RESERVED)


def sleep_ms(due_ms: int, now_ms: int) -> int:
    """How long to sleep until the next sample is due."""
    return max(SHORTEST_SLEEP_MS, due_ms - now_ms)

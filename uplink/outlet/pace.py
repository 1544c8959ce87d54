"""How fast a route's backfill goes: never so fast that live messages wait behind it.

The backfill's PUBLISHes in flight are bounded. The bound grows while the next broker acknowledges quickly, and halves
when that takes longer than usual or the broker says that its quota is exceeded. A part of the broker's Receive Maximum
is always left to live messages. While live messages wait too, the backfill gets a share of what is sent.
"""

import time
from collections.abc import Callable

BOUND_FIRST = 200  # PUBLISHes in flight, on a new connection
LIVE_SHARE = 4  # a quarter of the Receive Maximum is left to live messages
SLOW_S = 0.25  # an acknowledgement is slow if it takes this and SLOW_TIMES as long as the quickest one
SLOW_TIMES = 2
TOGETHER = 4  # a quarter of the bound goes at once: each reading of the log costs as much as some messages
GROWTH = 8  # once the bound was halved, it grows by an eighth
CREDIT_MOST = 250.0  # messages that live ones have earned for the backfill
BURST_S = 0.1  # of the rate, at once
WAIT_LEAST_S = 0.01  # so that a few messages go at once

Clock = Callable[[], float]


class BackfillPace:
    """Says how many messages of the backfill may go now.

    Args:
        weight: the share of the backfill, in percent, of the messages that are sent while both lanes wait, below 100.
        rate: the most messages of the backfill a second, None: no limit.
        bound_most: the most PUBLISHes in flight.
        clock: returns seconds.

    ``bound`` is the most PUBLISHes in flight with which another one of the backfill goes.
    """

    def __init__(self, weight: int, rate: int | None, bound_most: int, clock: Clock = time.monotonic) -> None:
        self._earned = weight / (100 - weight)  # for the backfill by each live message
        self._rate = rate
        self._bound_most = bound_most
        self._clock = clock
        self._credit = 0.0
        self._tokens = 1.0 if rate is None else max(1.0, rate * BURST_S)
        self._filled_s = clock()
        self._quota: Callable[[], int] = lambda: 0
        self._quota_most = 0
        self.bound = 0
        self.begin(lambda: 0, 0)

    def begin(self, quota: Callable[[], int], quota_most: int) -> None:
        """Begins anew, as there is another connection.

        Args:
            quota: returns how many more PUBLISHes the broker takes now.
            quota_most: how many it takes before it has acknowledged one: its Receive Maximum.
        """
        self._quota, self._quota_most = quota, quota_most
        self._reserve = max(1, quota_most // LIVE_SHARE) if quota_most > 1 else 0
        self.bound = min(BOUND_FIRST, self._highest)
        self._quickest_s = float("inf")
        self._is_probing = True  # the bound doubles until it was halved
        self._begun_s: float | None = None  # since when a PUBLISH of the backfill is in flight
        self._before_it = 0  # how many acknowledgements come up to that one's
        self._is_tight = False  # whether the bound has limited the backfill meanwhile

    @property
    def _highest(self) -> int:
        return max(1, min(self._bound_most, self._quota_most - self._reserve))

    @property
    def is_due(self) -> bool:
        """Whether the backfill goes before live messages that wait: these have earned its share."""
        return self._credit >= 1

    def allowed(self, limit: int, *, is_idle: bool) -> int:
        """Returns how many PUBLISHes of the backfill may go now.

        Args:
            limit: no more than these.
            is_idle: whether no live message waits; otherwise only the backfill's share goes.
        """
        quota = self._quota()
        if is_idle:
            in_flight = self._quota_most - quota
            most = min(self.bound - in_flight, quota - self._reserve)
            self._is_tight |= most < limit
            if most < min(limit, self.bound // TOGETHER):
                return 0
        else:
            most = min(int(self._credit), quota)
        return max(0, min(limit, most, self._tokens_now()))

    @property
    def wait_s(self) -> float | None:
        """How long the rate keeps the backfill back, as ``allowed`` has just found it; None: it does not."""
        if self._rate is None or self._tokens >= 1:
            return None
        return max(WAIT_LEAST_S, (1 - self._tokens) / self._rate)

    def note_live(self, messages: int) -> None:
        """Live messages go while the backfill waits."""
        self._credit = min(CREDIT_MOST, self._credit + self._earned * messages)

    def note_backfill(self, publishes: int, messages: int) -> None:
        """``messages`` of the backfill go, in ``publishes`` PUBLISHes."""
        self._credit = max(0.0, self._credit - messages)
        if self._rate is not None:
            self._tokens -= messages
        if self._begun_s is None and publishes:
            self._begun_s = self._clock()
            self._before_it = self._quota_most - self._quota() + publishes

    def note_no_backfill(self) -> None:
        """The backfill has no message to go now."""
        self._credit = 0.0

    def note_acknowledged(self, publishes: int) -> None:
        """The broker has acknowledged PUBLISHes of any lane."""
        if self._begun_s is None:
            return
        self._before_it -= publishes
        if self._before_it > 0:
            return
        took_s = self._clock() - self._begun_s
        self._quickest_s = min(self._quickest_s, took_s)
        if took_s > SLOW_TIMES * self._quickest_s + SLOW_S:
            self.slow_down()
        elif self._is_tight:
            self.bound = min(self._highest, self.bound + (self.bound if self._is_probing else self.bound // GROWTH + 1))
        self._begun_s, self._is_tight = None, False

    def slow_down(self) -> None:
        """The broker is slow, or says that its quota is exceeded."""
        self.bound = max(1, self.bound // 2)
        self._is_probing = False
        self._begun_s = None

    def _tokens_now(self) -> int:
        if self._rate is None:
            return 1 << 30
        now_s = self._clock()
        self._tokens = min(max(1.0, self._rate * BURST_S), self._tokens + (now_s - self._filled_s) * self._rate)
        self._filled_s = now_s
        return max(0, int(self._tokens))

"""The keys of a multicast group: the one in use, and the next one, which receivers get before it is used."""

import os

from wire.multicast import EPOCH_SIZE, KEY_SIZE

OVERLAP_S = 5.0  # between the handing out of a key and its use


class GroupKeys:
    """The keys of one epoch. ``epoch`` is random: what an earlier process has sent counts nowhere any more.

    ``number`` and ``key`` are those in use. ``has_readers``: the key in use was handed out. ``next_key`` was handed to
     the receivers that are connected, and is used from ``next_from_s`` on; None until then.

    Args:
        rotate_s: how many seconds a key is used.
        now_s: the time on the event loop's clock.
    """

    def __init__(self, rotate_s: float, now_s: float) -> None:
        self.epoch = os.urandom(EPOCH_SIZE)
        self.number = 1
        self.key = os.urandom(KEY_SIZE)
        self.has_readers = False
        self.next_key: bytes | None = None
        self.next_has_readers = False
        self._latest_s = 0.0  # when the next key is used at the latest
        self._rotate_s = rotate_s
        self.next_from_s = now_s + rotate_s

    def is_next_due(self, now_s: float) -> bool:
        """Whether the next key is to be handed out now."""
        return self.next_key is None and now_s >= self.next_from_s - OVERLAP_S

    def begin_next(self, now_s: float) -> None:
        """Makes the next key; it is used as soon as its receivers have had time to get it.

        One that was made before, and is not in use, is replaced: a receiver that has it may have lost its right since.
        """
        is_pending = self.next_key is not None
        self.next_key, self.next_has_readers = os.urandom(KEY_SIZE), False
        # However often it is replaced, the key in use ends in time.
        latest_s = self._latest_s if is_pending else now_s + 2 * OVERLAP_S
        self._latest_s = latest_s
        self.next_from_s = min(now_s + OVERLAP_S, latest_s)

    def is_change_due(self, now_s: float) -> bool:
        """Whether the next key is to be used now."""
        return self.next_key is not None and now_s >= self.next_from_s

    def change(self, now_s: float) -> None:
        """Uses the next key from now on."""
        assert self.next_key is not None
        self.number, self.key, self.next_key = self.number + 1, self.next_key, None
        self.has_readers = self.next_has_readers
        self.next_from_s = now_s + self._rotate_s

    def hand_out(self) -> list[tuple[int, bytes]]:
        """Returns (number, key) of each key that a new receiver needs."""
        self.has_readers = True
        keys = [(self.number, self.key)]
        return [*keys, self.hand_out_next()] if self.next_key is not None else keys

    def hand_out_next(self) -> tuple[int, bytes]:
        """Returns number and key of the next key."""
        assert self.next_key is not None
        self.next_has_readers = True
        return self.number + 1, self.next_key

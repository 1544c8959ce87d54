"""The upkeep of the store: it erases ahead while there is time, and the device tells what went bad or was lost."""

from flash_store.errors import StoreFull

BUSY_MS = 250  # time between two erases on a line that is never idle; filling a sector takes longer


class Upkeep:
    """Looks after the device's `flash_store.log.Log`.

    A serial line would lose bytes while flash is erased, so its peer is asked for silence first.

    Args:
        log: the device's `flash_store.log.Log`.
        sampler: `device.readings.Sampler`, which stores the reports of losses.
        uptime: has `now_ms`.
        say: called with each line of text for the console and the log.
    """

    def __init__(self, log, sampler, uptime, say) -> None:
        self._log = log
        self._sampler = sampler
        self._uptime = uptime
        self._say = say
        self._bad_records = 0
        self._losses: list = []  # the one `Losses`, once something is lost
        self._busy_ms = 0  # until then, the peer of a line that is never idle is not asked again
        self.is_asking = False  # whether the peer of a serial line is being asked for silence

    def is_due(self, now_ms: int) -> bool:
        """Whether to call `idle` although the line is busy."""
        if not self.is_asking and (now_ms < self._busy_ms or not self._log.erase_due):
            return False
        self._busy_ms = now_ms + BUSY_MS
        return True

    def idle(self, session) -> None:
        """Lets the store erase ahead, once the peer is silent."""
        if self.is_asking or self._log.erase_due:
            self.is_asking = not session.pause(self._uptime.now_ms())
            if not self.is_asking:
                self._log.idle()
                session.resume(self._uptime.now_ms())
        self.tell_bad_records()

    def tell_bad_records(self) -> None:
        count = self._log.bad_records
        if count > self._bad_records:
            self._say(f"flash: {count - self._bad_records} bad record(s) skipped, {count} since the start")
        self._bad_records = count

    def tell_losses(self) -> bool:
        """Reports lost messages; returns whether there is a new message that reports some."""
        if not self._losses:
            if not self._log.gaps():
                return False
            from device.readings.losses import Losses  # loaded only here: most devices never lose a message

            self._losses.append(Losses(self._log, self._tell))
        try:
            return self._losses[0].advance()
        except StoreFull:
            return False  # the store is full: the gap is forgotten later

    def _tell(self, samples: list) -> int | None:
        return self._sampler.tell(samples, self._uptime.now_ms())

"""Readings about the device itself (health.heap_free, health.store_fill …), one message every `health_interval_ms`."""

from device.mqtt.settings import SET_ASIDE, read_setting


class Health:
    """Args:
    device: `device.device.Device`.
    interval_ms: time between two reports; None: a report is made only on command.
    reset_cause: why the board started, as text.
    """

    def __init__(self, device, interval_ms: int | None, reset_cause: str) -> None:
        self._device = device
        self._interval_ms = interval_ms
        self._reset_cause = reset_cause
        self._due_ms: int | None = None if interval_ms is None else 0

    def next_timer_ms(self) -> int | None:
        """When `advance` wants to be called."""
        return self._due_ms

    def advance(self, now_ms: int) -> None:
        if self._interval_ms is not None and self._due_ms is not None and now_ms >= self._due_ms:
            self._due_ms = now_ms + self._interval_ms
            self.report(now_ms)

    def report(self, now_ms: int) -> int | None:
        """Stores a report; returns the message's id, None if there is no room (the next report comes in its time)."""
        return self._device.sampler.tell(self._samples(), now_ms)

    def _samples(self) -> list:
        device = self._device
        stats = device.log.stats()
        samples = [
            ("health.store_fill", "/", round(1 - stats["free"] / stats["sectors"], 3)),
            ("health.waiting", "count", stats["live"]),
            ("health.lost", "count", stats["lost"]),
            ("health.bad_records", "count", stats["bad_records"]),
            ("health.bad_sectors", "count", stats["bad"]),
            ("health.connects", "count", device.connects),
            ("health.starts", "count", device.log.boot_id),
            ("health.reset_cause", None, self._reset_cause),
        ]
        free = device.board.free_heap()
        if free is not None:
            samples.append(("health.heap_free", "B", free))
        if read_setting(device.log, SET_ASIDE) is not None:
            from device.mqtt.refusals import read_set_aside

            samples.append(("health.set_aside", "count", read_set_aside(device.log)["count"]))
        if device.field is not None:
            samples += device.field.sample()
        if device.qos0_queue is not None:
            samples.append(("health.dropped", "count", device.qos0_queue.dropped))
        return samples

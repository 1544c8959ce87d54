"""Runs a configured sensor: returns its readings, or an error record if it fails."""

from device.sensors.driver import Driver, SensorFailed

REASON_LENGTH_MAX = 100


class Probe:
    """Runs a driver that may fail. Then its readings are absent, and a record `NAME.error` says why.

    After a failure the next sample makes a new driver, so that a sensor that works again is found.

    Args:
        config: the values of a `device.sensors.config.SensorConfig`.
    """

    def __init__(self, config) -> None:
        self._config = config
        self._driver: Driver | None = None
        self._reason = ""

    def start(self) -> int:
        """Begins a measurement; returns how many milliseconds `sample` has to wait for it."""
        return self._attempt(self._start) or 0

    def sample(self) -> list:
        """Returns [(name, unit, value)]; after a failure [(error name, None, reason)]."""
        samples = None if self._driver is None else self._attempt(self._sample)
        return [(self._config.error_name, None, self._reason)] if samples is None else samples

    def _attempt(self, step):
        """Calls `step`; any exception counts as a failure of this sensor only.

        MicroPython's own drivers raise exceptions of all kinds.
        """
        try:
            return step()
        except Exception as error:
            self._driver = None
            text = str(error)
            if not isinstance(error, SensorFailed):
                text = f"{type(error).__name__} {text}"
            self._reason = text.strip()[:REASON_LENGTH_MAX]
            return None

    def _start(self) -> int:
        if self._driver is None:
            self._driver = self._config.driver(*self._config.arguments)
        return self._driver.start()

    def _sample(self) -> list:
        assert self._driver is not None
        prefix = self._config.prefix
        samples = []
        for metric, unit, value in self._driver.sample():
            if value - value != 0:  # infinite or NaN, which SenML cannot represent
                raise SensorFailed(f"{metric} is {value}")
            low, high = self._driver.RANGES.get(metric, (value, value))
            if not low <= value <= high:  # a checksum may be right, or not there at all
                raise SensorFailed(f"{metric} is {value}, which is not within {low} to {high}")
            samples.append((prefix + metric, unit, value))
        return samples

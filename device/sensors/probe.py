"""A configured sensor at work: its readings, or why there are none."""

from device.sensors.driver import Driver, SensorFailed

REASON_LENGTH_MAX = 100


class Probe:
    """A driver that may fail. A reading is then absent, and a record `NAME.error` says why.

    A driver that fails is made anew at the next sample, so that a sensor that comes back is found.

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
        """[(name, unit, value)]; of a failure [(name, None, reason)]."""
        samples = None if self._driver is None else self._attempt(self._sample)
        return [(self._config.error_name, None, self._reason)] if samples is None else samples

    def _attempt(self, step):
        """Any failure is the reason of this sensor alone: MicroPython's own drivers raise plain exceptions."""
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
            if value - value != 0:  # infinite or not a number, for which SenML has no form
                raise SensorFailed(f"{metric} is {value}")
            samples.append((prefix + metric, unit, value))
        return samples

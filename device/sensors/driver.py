"""What all drivers have in common."""


class SensorFailed(Exception):
    """A reading cannot be had; the text is the reason, for people."""


class Driver:
    """One sensor.

    Its constructor finds the sensor and makes it ready; it and both methods may raise anything where that fails. A
    driver that has raised is not used again: the next sample makes a new one, which finds the sensor as it is then.
    Modules that only boards have are imported where they are used, so that a configuration is checked anywhere.
    """

    METRICS: tuple = ()  # the names that `sample` uses
    SHORTEST_INTERVAL_MS = 1  # from one sample to the next
    NEEDS_POWER = False  # whether it has to go on while the device sleeps

    @staticmethod
    def read(section) -> tuple:
        """The constructor's arguments, from the sensor's section of the configuration. Raises ConfigError."""
        return ()

    def start(self) -> int:
        """Begins a measurement; returns how many milliseconds `sample` has to wait for it."""
        return 0

    def sample(self) -> list:
        """[(name, unit, value)] of this moment."""
        raise NotImplementedError

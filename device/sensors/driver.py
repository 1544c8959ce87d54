"""The base class of all drivers, and their error."""


class SensorFailed(Exception):
    """The sensor cannot be read; the text says why."""


class Driver:
    """One sensor.

    The constructor finds the sensor and makes it ready. The constructor and both methods may raise any exception if
    that fails. A driver that has raised is not used again: the next sample makes a new one, which finds the sensor in
    its state at that time. Modules that exist only on boards are imported where they are used, so that a configuration
    can be checked on any machine.
    """

    METRICS: tuple = ()  # the names that `sample` uses
    RANGES: dict = {}  # by name, the lowest and the highest value that the datasheet has; others count as failures
    SHORTEST_INTERVAL_MS = 1  # shortest time between two samples
    NEEDS_POWER = False  # whether the sensor must keep working while the device sleeps

    @staticmethod
    def read(section) -> tuple:
        """Returns the constructor's arguments from the sensor's section of the configuration. Raises ConfigError."""
        return ()

    def start(self) -> int:
        """Begins a measurement; returns how many milliseconds `sample` has to wait for it."""
        return 0

    def sample(self) -> list:
        """Returns the present readings as [(name, unit, value)]."""
        raise NotImplementedError

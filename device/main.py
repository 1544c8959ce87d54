"""The firmware's entry: `import device.main; device.main.main("device.json")`."""

import select
import sys

from device import clock as clocks
from device import config as configuration
from device.boards import unix as board
from device.clock import earliest
from device.config import ConfigError
from device.journal import Journal, NoJournal
from device.ports.tcp import Tcp
from device.publisher import Publisher
from device.sampler import Sampler
from device.sensors.probe import Probe
from device.session import Session
from flash_store.errors import StoreCorrupt, StoreError
from flash_store.log import Log, is_blank


def main(config_path: str) -> None:
    """Runs until Ctrl-C or a power cut; both leave nothing to tidy up.

    Raises SystemExit: 2 where the configuration cannot be used, 1 where the flash cannot.
    """
    try:
        device = Device(configuration.load(config_path))
        while True:
            device.advance()
    except ConfigError as error:
        _exit(2, f"configuration: {error}")
    except StoreError as error:
        _exit(1, f"flash: {error}")
    except KeyboardInterrupt:
        pass


class Device:
    """All parts, and the loop that turns them."""

    def __init__(self, config) -> None:
        self._uptime = board.Uptime()
        self._poller = select.poll()
        self._log = _open_log(config)
        self._bad_records = 0
        journal = _open_journal(config)
        count = len(self._log)
        board.say(
            f"{config.client_id}: boot {self._log.boot_id}, epoch {self._log.epoch:08x}, "
            f"{count} messages to send, {journal.made} readings made"
        )
        self._tell_bad_records()
        probes = [Probe(sensor) for sensor in config.sensors]
        clock = _make_clock(config.clock, self._log.boot_id)
        self._sampler = Sampler(config, self._log, journal, clock, probes, board.say)
        self._sntp = _make_sntp(config.clock, clock)
        port = _make_port(config.port, self._poller, self._log.boot_id)
        publisher = Publisher(self._log, config.client_id, board.say)
        self._session = Session(port, config.client_id, publisher, clock, board.say)
        self._ready = 0

    def advance(self) -> None:
        """One turn: what is due, then a wait for the port or the next moment at which something is due."""
        now_ms = self._uptime.now_ms()
        self._sampler.advance(now_ms)
        self._session.advance(self._ready, now_ms)
        timers_ms = [self._sampler.next_timer_ms(), self._session.next_timer_ms(), now_ms + board.Uptime.CALL_MS]
        if self._sntp is not None:
            self._sntp.advance(now_ms)
            timers_ms.append(self._sntp.next_timer_ms())
        timer_ms = earliest(timers_ms)
        wait_ms = -1 if timer_ms is None else max(0, timer_ms - self._uptime.now_ms())
        found = self._poller.poll(wait_ms)
        self._ready = found[0][1] if found else 0
        if not found:
            self._log.idle()
            self._tell_bad_records()

    def _tell_bad_records(self) -> None:
        count = self._log.stats()["bad_records"]
        if count > self._bad_records:
            board.say(f"flash: {count - self._bad_records} bad record(s) skipped, {count} since the start")
        self._bad_records = count


def _open_log(config) -> Log:
    """Only flash on which nothing was ever stored is formatted."""
    try:
        flash = board.open_flash(config.flash_path, config.sector_count)
    except OSError as error:
        raise ConfigError(f"flash.path is {config.flash_path}, expected a file to read and write: {error}")
    try:
        return Log(flash)
    except StoreCorrupt:
        if not is_blank(flash):
            raise
    Log.format(flash, board.random_u32())
    return Log(flash)


def _open_journal(config) -> Journal | NoJournal:
    if config.journal is None:
        return NoJournal()
    try:
        return Journal(config.journal)
    except (OSError, ValueError) as error:
        raise ConfigError(f"journal is {config.journal}, expected a file of this device's counts: {error}")


def _make_clock(config, boot_id: int) -> clocks.Clock:
    if config.kind == clocks.SYSTEM:
        return clocks.SystemClock(boot_id, board.unix_ms)
    return clocks.Clock(boot_id, None if config.kind == clocks.NONE else config.kind)


def _make_sntp(config, clock):
    if config.kind != clocks.NTP:
        return None
    from device.sntp import Sntp

    return Sntp(config.host, clock)


def _make_port(port, poller, boot_id: int):
    if port.kind == "tcp":
        return Tcp(port.host, port.port, poller)
    if not board.has_speed(port.baud):
        raise ConfigError(f"port.baud is {port.baud}, expected a speed that this board knows, such as 115200")
    from device.ports.uart import Uart  # a device on a network does without the link

    return Uart(port.path, port.baud, poller, boot_id)


def _exit(code: int, text: str) -> None:
    sys.stderr.write(text + "\n")
    raise SystemExit(code)

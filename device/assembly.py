"""What a device is made of, each part as the configuration has it; needed at the start alone."""

from device import clock
from device.errors import ConfigError
from device.publisher import Publisher
from device.session import Session
from flash_store.errors import StoreCorrupt
from flash_store.log import Log, is_blank


def open_flash(config, board):
    try:
        return board.open_flash(config.flash_path, config.sector_count)
    except OSError as error:
        raise ConfigError(f"flash.path is {config.flash_path}, expected a file to read and write: {error}")


def open_log(flash, board, on_full: str) -> Log:
    """Only flash on which nothing was ever stored is formatted."""
    try:
        return Log(flash, on_full)
    except StoreCorrupt:
        if not is_blank(flash):
            raise
    Log.format(flash, board.random_u32())
    return Log(flash, on_full)


def open_journal(config):
    from device.journal import Journal, NoJournal

    if config.journal is None:
        return NoJournal()
    try:
        return Journal(config.journal)
    except (OSError, ValueError) as error:
        raise ConfigError(f"journal is {config.journal}, expected a file of this device's counts: {error}")


def make_clock(config, boot_id: int, board) -> clock.Clock:
    if config.kind == clock.SYSTEM:
        return clock.SystemClock(boot_id, board.unix_ms)
    return clock.Clock(boot_id, None if config.kind == clock.NONE else config.kind)


def make_sntp(config, utc, board):
    if config.kind != clock.NTP:
        return None
    from device.sntp import Sntp

    return Sntp(config.host, utc, set_time=board.set_time)


def make_unstored(config):
    if config.qos:
        return None
    from device.unstored import Unstored

    return Unstored()


def make_health(config, device):
    if config.health_interval_ms is None:
        return None
    from device.health import Health

    return Health(device, config.health_interval_ms, device.board.reset_cause())


def make_port(port, poller, boot_id: int, board):
    """The way to the broker that the configuration names. Raises ConfigError."""
    if port.kind == "tcp":
        from device.ports.tcp import Tcp

        return Tcp(port.host, port.port, poller)
    if port.kind == "tls":
        return _make_tls(port, poller)
    if not board.has_speed(port.baud):
        raise ConfigError(f"port.baud is {port.baud}, expected a speed that this board knows, such as 115200")
    from device.ports.uart import Uart  # a device on a network does without the link

    return Uart(port.path, port.baud, poller, boot_id)


def _make_tls(port, poller):
    try:
        from device.ports.tls import Tls
    except ImportError:
        raise ConfigError('port.kind is "tls", expected "tcp" or "uart": this Python has no module tls')
    try:
        return Tls((port.host, port.port), poller, port.server_name, port.ca, port.certificate, port.key)
    except (OSError, ValueError) as error:
        files = f"ca {port.ca}, certificate {port.certificate}, key {port.key}"
        raise ConfigError(f"port has {files}; expected files of certificates and a key, DER or PEM: {error}")


def make_network(config, board, say):
    """None where the board has its own, or a line."""
    return board.Network(config.wifi.ssid, config.wifi.password, say) if config.wifi else None


def make_watchdog(config, board):
    if board.Watchdog is None or config.watchdog_ms is None:
        return None
    if config.watchdog_ms > board.WATCHDOG_MS_MAX:
        most = board.WATCHDOG_MS_MAX
        raise ConfigError(f"watchdog_ms is {config.watchdog_ms}, expected at most {most}, which this board can wait")
    return board.Watchdog(config.watchdog_ms)


def make_session(device, port, on_message) -> Session:
    """`device` is the `device.device.Device` that gets it, with all other parts."""
    config = device.config
    publisher = Publisher(device.log, config.client_id, device.say, config.resends, device.unstored)
    inbox = status = None
    if config.commands is not None:
        inbox = _make_inbox(device, on_message)
    if config.status is not None:
        from device.status import Status

        status = Status(config, device.facts())
    return Session(port, config, publisher, device.clock, device.say, inbox, status, device.network)


def _make_inbox(device, on_message):
    from device.commands import Commands, stored_interval_ms
    from device.inbox import Inbox

    interval_ms = stored_interval_ms(device.log, device.config.shortest_interval_ms)
    if interval_ms is not None:
        device.change_interval(interval_ms, device.uptime.now_ms())
    return Inbox(device.config, device.log, Commands(device, on_message).act, device.say)

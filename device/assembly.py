"""Makes the parts of a device from its configuration. Only the start needs this module; then it leaves the heap."""

from device import clock
from device.mqtt import Session
from device.mqtt.brokers import Brokers
from device.mqtt.publisher import Publisher
from device.mqtt.settings import DROPPED_IN_FLIGHT, PLACE, is_sent, read_setting
from device.values import ConfigError
from device.watchdog import NoWatchdog
from flash_store.errors import MessageTooLarge, StoreCorrupt, StoreFull
from flash_store.log import Log, is_blank
from wire.codec import MQTT_5

NAME_KEY = "client_id"  # key of the setting
MOUNT_MS = 600_000  # the longest time that mounting or formatting a large store may take


def open_flash(config, board):
    try:
        return board.open_flash(config.flash_path, config.sector_count)
    except OSError as error:
        raise ConfigError(f"flash.path is {config.flash_path}, expected a file to read and write: {error}")


def open_log(flash, board, config, watchdog) -> Log:
    """Mounts the log; formats the flash first, but only if nothing was ever stored on it. Raises StoreCorrupt."""
    kind = Log if config.until is None else config.until[0]
    watchdog.lengthen(MOUNT_MS)
    try:
        return kind(flash, config.on_full)
    except StoreCorrupt:
        if not is_blank(flash):
            raise
        Log.format(flash, board.random_u32())
        return kind(flash, config.on_full)
    finally:
        watchdog.shorten()


def settle_name(log, config, say) -> bool:
    """Decides which client id the device uses; returns whether that is the old one, not the configured one.

    The identities of the stored messages contain the client id under which they were made, and the broker keeps its
    session under that id. So if the configured id has changed, the device keeps the old one until all stored messages
    are sent.
    """
    noted, name = read_setting(log, NAME_KEY), config.client_id.encode()
    if noted == name:
        return False
    if noted is not None and not is_sent(log):
        config.client_id = str(noted, "utf-8")
        say(f"client_id is {str(name, 'utf-8')} once the messages of {config.client_id} are sent")
        return True
    try:
        log.settings.remove("until")  # `KEY` of `device.mqtt.receipts`: no message of the old name goes again
        log.settings.set(NAME_KEY, name)
    except (StoreFull, MessageTooLarge):
        pass  # the store of an older firmware may be full: a later start notes the id
    return False


def open_journal(config):
    from device.readings.journal import Journal, NoJournal

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


def make_sntp(config, utc, board, watchdog):
    if config.kind != clock.NTP:
        return None
    from device.sntp import Sntp

    return Sntp(config.host, utc, watchdog, set_time=board.set_time)


def make_qos0_queue(config):
    if config.qos:
        return None
    from device.mqtt.qos0_queue import Qos0Queue

    return Qos0Queue()


def make_dropped_in_flight(log):
    if log.on_full == "reject_new" and read_setting(log, DROPPED_IN_FLIGHT) is None:
        return None
    from device.mqtt.dropped_in_flight import DroppedInFlight

    return DroppedInFlight(log)


def make_health(config, device):
    if config.health_interval_ms is None:
        return None
    from device.readings.health import Health

    return Health(device, config.health_interval_ms, device.board.reset_cause())


def make_port(port, poller, boot_id: int, board, watchdog):
    """Makes the port to a broker, as the configuration describes it. Raises ConfigError."""
    if port.kind == "tcp":
        from device.ports.tcp import Tcp

        return Tcp(port.host, port.port, poller, watchdog)
    if port.kind == "tls":
        return _make_tls(port, poller, watchdog)
    if not board.has_speed(port.baud):
        raise ConfigError(f"port.baud is {port.baud}, expected a speed that this board knows, such as 115200")
    from device.ports.uart import Uart  # loaded only here: a device on a network does not need the serial link

    return Uart(port.path, port.baud, poller, boot_id)


def _make_tls(port, poller, watchdog):
    try:
        from device.ports.tls import Tls
    except ImportError:
        raise ConfigError('port.kind is "tls", expected "tcp" or "uart": this Python has no module tls')
    try:
        return Tls((port.host, port.port), poller, watchdog, port.server_name, port.ca, port.certificate, port.key)
    except (OSError, ValueError) as error:
        files = f"ca {port.ca}, certificate {port.certificate}, key {port.key}"
        raise ConfigError(f"port has {files}; expected files of certificates and a key, DER or PEM: {error}")


def make_field(config, board, uptime):
    """Makes the `device.field.life.Life` of a device whose configuration wants one, else None. Raises ConfigError."""
    if config.field is None:
        return None
    from device.field.life import Life

    return Life(config, board, uptime)


def begin_field(device, watchdog):
    """Lets the `Life` of a device begin, once its store is open; makes one if the store tells of a move.

    Returns the watchdog to use from now on.
    """
    if device.field is None:
        if read_setting(device.log, PLACE) is None:
            return watchdog
        from device.field.life import Life

        device.field = Life(device.config, device.board, device.uptime)
    watchdog = device.field.begin(device, watchdog)
    network = make_network(device.config, device.board, device.say, watchdog)
    device.network = device.field.network_of(device, network, watchdog)
    return watchdog


def make_network(config, board, say, watchdog):
    """Makes the Wi-Fi network; None if the configuration names none. Raises ConfigError on a board without Wi-Fi."""
    if not config.networks:
        return None
    if board.Network is None:
        raise ConfigError(f"network is an object, expected none: {board.NAME} has no Wi-Fi to join")
    return board.Network(config.networks, config.host_name, say, watchdog, config.country)


def make_watchdog(config, board):
    """Starts the board's watchdog (see `device.boards`), or makes a `NoWatchdog`. Raises ConfigError."""
    if board.Watchdog is None or config.watchdog_ms is None:
        return NoWatchdog()
    if config.watchdog_ms > board.WATCHDOG_MS_MAX:
        most = board.WATCHDOG_MS_MAX
        raise ConfigError(f"watchdog_ms is {config.watchdog_ms}, expected at most {most}, which this board can wait")
    return board.Watchdog(config.watchdog_ms)


def make_session(device, make_port, on_message) -> Session:
    """Makes the session of a `device.device.Device`, whose other parts exist already; for `make_port` see `Brokers`."""
    config = device.config
    dropped = make_dropped_in_flight(device.log)
    keeping = config.until
    publisher = (Publisher if keeping is None else keeping[1])(
        device.log, config.client_id, device.clock, device.say, config.resends, dropped, device.qos0_queue
    )
    inbox = status = None
    if config.commands is not None:
        inbox = _make_inbox(device, on_message)
    if config.status is not None:
        from device.mqtt.status import Status

        status = Status(config, device.facts)
    try:
        brokers = Brokers(config.ports, make_port, device.log, device.say)
    except ConfigError as error:
        if device.field is None or not device.field.is_on_trial:
            raise
        raise OSError(f"the move cannot be tried: {error}")  # so the device restarts, and goes back
    kind = Session if keeping is None else keeping[2]
    return kind(brokers, config, publisher, device.clock, device.say, inbox, status, _when_timed(device))


def _when_timed(device):
    """Returns the network; for TLS, one that counts as up only after a clock that was never set has been set."""
    sntp = device.sntp
    needs_time = any(port.kind == "tls" for port in device.config.ports)
    if sntp is None or not needs_time or device.board.unix_ms() >= clock.EARLIEST_UNIX_MS:
        return device.network
    from device.sntp import TimedNetwork

    return TimedNetwork(device.network, sntp)


def _make_probe(log, config):
    if config.protocol_level != MQTT_5:
        return None
    from device.mqtt.session_probe import SessionProbe

    return SessionProbe(log, config.client_id, config.topic)


def _make_inbox(device, on_message):
    from device.mqtt.commands import Commands, stored_interval_ms
    from device.mqtt.inbox import Inbox

    interval_ms = stored_interval_ms(device.log, device.config.shortest_interval_ms)
    if interval_ms is not None and interval_ms != device.config.interval_ms:
        device.say(f"interval_ms is {interval_ms} by a command, in place of {device.config.interval_ms}")
        device.change_interval(interval_ms, device.uptime.now_ms())
    act = Commands(device, on_message).act
    return Inbox(device.config, device.log, act, device.say, _make_probe(device.log, device.config))

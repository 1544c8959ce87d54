"""The device: all its parts, and the loop that runs them."""

import select

from device import memory
from device.clock import earliest
from device.mqtt import Session
from device.mqtt.settings import is_sent
from device.readings import Sampler
from device.readings.upkeep import Upkeep
from device.sensors.probe import Probe
from device.watchdog import NoWatchdog
from wire.topics import check_topic_name

PAUSE_LOOK_MS = 20  # longest wait while the peer of a serial line is asked for silence


class Device:
    """All parts of a device, and the loop that runs them.

    Its parts are `log`, `sampler`, `clock`, `uptime`, `sntp` (None if no time server is used), `network` (None if the
    board has no network to join), `qos0_queue` (None unless the configuration chooses QoS 0) and `field` (None unless
    it has something of `device.field`).

    Args:
        config: see `device.config`.
        board: a board module of `device.boards`.
        on_message: see `device.mqtt.commands.Commands`.
        watchdog: see `device.boards`; None: there is none.
        slept: `device.sleeper.Slept` after a deep sleep, else None.
    """

    def __init__(self, config, board, on_message=None, watchdog=None, slept=None) -> None:
        from device import assembly  # `device.memory` drops it from the heap once the device is made

        self._watchdog = watchdog or NoWatchdog()
        self.config = config
        self.board = board
        self.wants_restart = False  # whether to restart as soon as every message to the device is answered
        self.has_ended = False
        self._poller = select.poll()
        self.uptime = board.Uptime(slept.uptime_ms if slept else 0)
        self._session: Session | None = None  # until it is made, `say` reaches only the console
        self.field = None  # `device.field.life.Life`, in a device that has one
        # The parts that may find an error in the configuration come before anything is written to flash.
        self.network = assembly.make_network(config, board, self.say, self._watchdog)
        self.field = assembly.make_field(config, board, self.uptime)
        journal = assembly.open_journal(config)
        self._flash = assembly.open_flash(config, board)
        self.log = assembly.open_log(self._flash, board, config, self._watchdog)
        memory.leave("flash_store.mount")
        self._keeps_name = assembly.settle_name(self.log, config, self.say)
        self._watchdog = assembly.begin_field(self, self._watchdog)
        self._ready = 0  # the port's event mask from the last poll
        self._alone_ms: int | None = 0  # since when there has been no connection; None: there is one
        self.clock = assembly.make_clock(config.clock, slept.boot_id if slept else self.log.boot_id, board)
        self.sntp = assembly.make_sntp(config.clock, self.clock, board, self._watchdog)
        self.qos0_queue = assembly.make_qos0_queue(config)
        self._greet(journal)
        self.sampler = Sampler(config, self.log, journal, self.clock, self._make_probes(), self.say, self.qos0_queue)
        self._upkeep = Upkeep(self.log, self.sampler, self.uptime, self.say)
        self._upkeep.tell_bad_records()
        self._health = assembly.make_health(config, self)
        self._session = assembly.make_session(self, self._make_port, on_message)

    def advance(self, longest_ms: int | None = None) -> None:
        """Runs one turn of the loop: does what is due, then waits for the port or until something is due.

        Args:
            longest_ms: the longest wait; None: no limit.
        """
        now_ms = self.uptime.now_ms()
        self._watchdog.feed()
        self.sampler.advance(now_ms)
        self._turn(now_ms)
        if self.config.restart_after_s is not None:
            self._look_for_connection(now_ms)
        is_over = self.field is not None and self.field.advance(self, self._session, now_ms)
        if is_over or (self.wants_restart and self._session is not None and self._session.is_settled):
            self._restart()
        elif not self.has_ended:
            most_ms = [] if longest_ms is None else [now_ms + longest_ms]
            if not self._wait(self._timers_ms(now_ms) + most_ms) or self._upkeep.is_due(now_ms):
                self._upkeep.idle(self._session)

    def publish(self, topic: str, payload: bytes, qos: int = 1, retain: bool = False) -> int:
        """Stores a message and returns its number once it is in flash; returns 0 at QoS 0, which stays in RAM.

        Raises StoreFull, MessageTooLarge, DeviceFailed; ValueError or WireError if no broker would accept the message.
        """
        if qos not in (0, 1, 2):
            raise ValueError(f"qos is {qos}, expected 0, 1 or 2")
        check_topic_name(topic)
        if qos:
            return self.log.append(topic, payload, qos, retain)
        if self.qos0_queue is None:
            raise ValueError("QoS 0 is for a device whose configuration has qos 0")
        self.qos0_queue.add(topic, payload, retain)
        return 0

    def say(self, text: str) -> None:
        """Logs a line of text on the console, and over a serial link in the gateway's log."""
        self.board.say(text)
        if self.field is not None:
            self.field.say(text)
        if self._session is not None:
            self._session.log(text)

    def facts(self) -> dict:
        """Returns what identifies this device and its present start, for status messages and `identify`."""
        facts = {
            "client_id": self.config.client_id,
            "board": self.board.NAME,
            "epoch": f"{self.log.epoch:08x}",
            "boot": self.log.boot_id,
            "reset_cause": self.board.reset_cause(),
        }
        if self.field is not None:
            facts.update(self.field.facts())
        return facts

    def act(self, told: dict, payload: bytes, is_once: bool) -> dict | None:
        """Carries out a command of `device.field`; returns None if its answer is not known yet."""
        from device.field.life import act

        answer = act(self, told, payload, is_once)
        del act
        if self.field is None:
            memory.leave("device.field.life")
        return answer

    def read_place(self, keys: dict) -> tuple:
        """Reads networks and ports; see `device.config.read_place`, which stays on the heap only meanwhile."""
        from device.config import read_place

        found = read_place(keys)
        del read_place
        memory.leave("device.config", "device.sensors.config", "device.field.config")
        return found

    @property
    def connects(self) -> int:
        return self._session.connects if self._session is not None else 0

    @property
    def shortest_interval_ms(self) -> int:
        return self.config.shortest_interval_ms

    def change_interval(self, interval_ms: int, now_ms: int) -> None:
        """Changes the sampling interval from now on."""
        self.sampler.change_interval(interval_ms, now_ms)

    def report(self, now_ms: int) -> int | None:
        """Stores a report of the device's health; returns the message's id, None if there is no room."""
        if self._health is None:
            from device.readings.health import Health

            self._health = Health(self, None, self.board.reset_cause())
        return self._health.report(now_ms)

    def close(self, has_time: bool = False) -> None:
        """Disconnects from the broker, switches the network off, and writes what waits in RAM to flash.

        Args:
            has_time: whether the store may also erase ahead.
        """
        assert self._session is not None
        self._session.close(self.uptime.now_ms())
        if self.network is not None:
            self.network.close()
        self.log.flush()
        if has_time:
            self.log.idle()
        if hasattr(self._flash, "close"):
            self._flash.close()

    def _look_for_connection(self, now_ms: int) -> None:
        assert self._session is not None
        if self._session.attached:
            self._alone_ms = None
        elif self._alone_ms is None:
            self._alone_ms = now_ms
        elif now_ms >= self._alone_ms + 1000 * self.config.restart_after_s and not self.wants_restart:
            self.say(f"no connection for {self.config.restart_after_s} s: it starts anew")
            self.wants_restart = True

    def _restart(self) -> None:
        self.close()
        self.has_ended = True
        self.board.restart()

    def _turn(self, now_ms: int) -> None:
        """Advances every part except the sampler."""
        assert self._session is not None
        if self.network is not None:
            self.network.advance(now_ms)
        if self.sntp is not None and (self.network is None or self.network.is_up):
            self.sntp.advance(now_ms)
        if self._health is not None:
            self._health.advance(now_ms)
        self._session.advance(self._ready, now_ms)
        if self._session.attached:
            if self.network is not None:
                self.network.hear(now_ms)
            if self._upkeep.tell_losses():
                self._session.advance(0, now_ms)  # send the report now: the next turn may be much later
        if self._keeps_name and is_sent(self.log):
            self.wants_restart = True

    def _timers_ms(self, now_ms: int) -> list:
        assert self._session is not None
        parts = (self.sampler, self._session, self.network, self.sntp, self._health, self.field)
        timers_ms = [part.next_timer_ms() for part in parts if part is not None] + [now_ms + self.uptime.CALL_MS]
        if self.config.restart_after_s is not None and self._alone_ms is not None and not self.wants_restart:
            timers_ms.append(self._alone_ms + 1000 * self.config.restart_after_s)
        return timers_ms

    def _wait(self, timers_ms: list) -> bool:
        """Waits until the port is ready or for the first of these moments; returns whether the port is ready."""
        wait_ms = max(0, earliest(timers_ms) - self.uptime.now_ms())
        if self.config.watchdog_ms is not None:
            wait_ms = min(wait_ms, self.config.watchdog_ms // 2)
        if self._upkeep.is_asking:
            wait_ms = min(wait_ms, PAUSE_LOOK_MS)
        found = self._poller.poll(wait_ms)
        self._ready = found[0][1] if found else 0
        return bool(found)

    def _greet(self, journal) -> None:
        self.say(
            f"{self.config.client_id}: boot {self.log.boot_id}, epoch {self.log.epoch:08x}, "
            f"{len(self.log)} messages to send, {journal.made} readings made"
        )

    def _make_probes(self) -> list:
        return [Probe(sensor) for sensor in self.config.sensors]

    def _make_port(self, config):
        from device.assembly import make_port

        port = make_port(config, self._poller, self.log.boot_id, self.board, self._watchdog)
        if self._session is not None:  # the device changes brokers: drop the module again
            memory.leave("device.assembly")
        return port

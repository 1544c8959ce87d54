"""All parts of a device, and the loop that turns them."""

import select

from device import memory
from device.clock import earliest
from device.noted import is_sent
from device.sampler import Sampler
from device.sensors.probe import Probe
from device.session import Session
from device.watchdog import NoWatchdog
from flash_store.errors import StoreFull
from wire.topics import check_topic_name

BUSY_MS = 250  # from one erase to the next on a line that is never idle: it fills a sector in more than that
PAUSE_LOOK_MS = 20  # while a line is asked to be silent


class Device:
    """All parts, and the loop that turns them.

    `log`, `sampler`, `clock`, `uptime`, `sntp` (None where no server is asked), `network` (None for a board that has
    its own) and `unstored` (None for a device without QoS 0) are its parts.

    Args:
        config: see `device.config`.
        board: one of `device.boards`.
        slept: `device.sleep_memory.Slept` after a deep sleep.
        on_message: see `device.commands.Commands`.
        watchdog: see `device.boards`; None: there is none.
    """

    def __init__(self, config, board, on_message=None, watchdog=None, slept=None) -> None:
        from device import assembly  # it leaves the heap once the device is made, see `device.memory`

        self._watchdog = watchdog or NoWatchdog()
        self.config = config
        self.board = board
        self.wants_restart = False  # as soon as nothing is under way
        self.has_ended = False
        self._poller = select.poll()
        self.uptime = board.Uptime(slept.uptime_ms if slept else 0)
        self._session: Session | None = None  # until it is made, lines go to the console alone
        # What may be wrong comes before flash is written.
        self.network = assembly.make_network(config, board, self.say, self._watchdog)
        journal = assembly.open_journal(config)
        self._flash = assembly.open_flash(config, board)
        self.log = assembly.open_log(self._flash, board, config.on_full, self._watchdog)
        self._keeps_name = assembly.settle_name(self.log, config, self.say)
        self._bad_records = 0
        self._is_erasing = False  # a line is being asked for silence
        self._busy_ms = 0  # until then a line that is never idle is not asked again
        self._ready = 0
        self._alone_ms: int | None = 0  # since then there has been no connection
        self.clock = assembly.make_clock(config.clock, slept.boot_id if slept else self.log.boot_id, board)
        self.sntp = assembly.make_sntp(config.clock, self.clock, board, self._watchdog)
        self.unstored = assembly.make_unstored(config)
        self._greet(journal)
        self.sampler = Sampler(config, self.log, journal, self.clock, self._make_probes(), self.say, self.unstored)
        self._losses: list = []  # the one `Losses`, once something is lost
        self._health = assembly.make_health(config, self)
        self._session = assembly.make_session(self, self._make_port, on_message)

    def advance(self, longest_ms: int | None = None) -> None:
        """One turn: what is due, then a wait for the port or the next moment at which something is due.

        Args:
            longest_ms: how long it may wait; None: as long as nothing is due.
        """
        now_ms = self.uptime.now_ms()
        self._watchdog.feed()
        self.sampler.advance(now_ms)
        self._turn(now_ms)
        if self.config.restart_after_s is not None:
            self._look_for_connection(now_ms)
        if self.wants_restart and self._session is not None and self._session.is_settled:
            self._restart()
        elif not self.has_ended:
            most_ms = [] if longest_ms is None else [now_ms + longest_ms]
            if not self._wait(self._timers_ms(now_ms) + most_ms):
                self._idle()
            elif self._is_erasing or (now_ms >= self._busy_ms and self.log.erase_due):
                self._busy_ms = now_ms + BUSY_MS
                self._idle()

    def publish(self, topic: str, payload: bytes, qos: int = 1, retain: bool = False) -> int:
        """Returns the message's number once flash has it; 0 at QoS 0, which stays in RAM.

        Raises StoreFull, MessageTooLarge, DeviceFailed; ValueError and WireError where no broker would take it.
        """
        if qos not in (0, 1, 2):
            raise ValueError(f"qos is {qos}, expected 0, 1 or 2")
        check_topic_name(topic)
        if qos:
            return self.log.append(topic, payload, qos, retain)
        if self.unstored is None:
            raise ValueError("QoS 0 is for a device whose configuration has qos 0")
        self.unstored.add(topic, payload, retain)
        return 0

    def say(self, text: str) -> None:
        """A line for people: on the console, and over a serial link."""
        self.board.say(text)
        if self._session is not None:
            self._session.log(text)

    def facts(self) -> dict:
        """Which device this is, for people and programs far away."""
        return {
            "client_id": self.config.client_id,
            "board": self.board.NAME,
            "epoch": f"{self.log.epoch:08x}",
            "boot": self.log.boot_id,
            "reset_cause": self.board.reset_cause(),
        }

    @property
    def connects(self) -> int:
        return self._session.connects if self._session is not None else 0

    @property
    def shortest_interval_ms(self) -> int:
        return self.config.shortest_interval_ms

    def change_interval(self, interval_ms: int, now_ms: int) -> None:
        """From now on."""
        self.sampler.change_interval(interval_ms, now_ms)

    def report(self, now_ms: int) -> int | None:
        """Stores a report of the device's health; returns the message's id, None where there is no room."""
        if self._health is None:
            from device.health import Health

            self._health = Health(self, None, self.board.reset_cause())
        return self._health.report(now_ms)

    def close(self, has_time: bool = False) -> None:
        """Leaves the broker, the radio and the flash as they are to be found.

        Args:
            has_time: to erase ahead.
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
        """All but sampling."""
        assert self._session is not None
        if self.network is not None:
            self.network.advance(now_ms)
        if self.sntp is not None and (self.network is None or self.network.is_up):
            self.sntp.advance(now_ms)
        if self._health is not None:
            self._health.advance(now_ms)
        self._session.advance(self._ready, now_ms)
        if self._session.attached and self._tell_losses():
            self._session.advance(0, now_ms)  # it goes out now: the next turn may be far off
        if self._keeps_name and is_sent(self.log):
            self.wants_restart = True

    def _timers_ms(self, now_ms: int) -> list:
        assert self._session is not None
        parts = (self.sampler, self._session, self.network, self.sntp, self._health)
        timers_ms = [part.next_timer_ms() for part in parts if part is not None] + [now_ms + self.uptime.CALL_MS]
        if self.config.restart_after_s is not None and self._alone_ms is not None and not self.wants_restart:
            timers_ms.append(self._alone_ms + 1000 * self.config.restart_after_s)
        return timers_ms

    def _wait(self, timers_ms: list) -> bool:
        """Until the port is ready or the first of these moments; returns whether the port is."""
        wait_ms = max(0, earliest(timers_ms) - self.uptime.now_ms())
        if self.config.watchdog_ms is not None:
            wait_ms = min(wait_ms, self.config.watchdog_ms // 2)
        if self._is_erasing:
            wait_ms = min(wait_ms, PAUSE_LOOK_MS)
        found = self._poller.poll(wait_ms)
        self._ready = found[0][1] if found else 0
        return bool(found)

    def _idle(self) -> None:
        """Nothing presses: the store erases ahead, once a line that would lose bytes meanwhile is silent."""
        assert self._session is not None
        if self._is_erasing or self.log.erase_due:
            now_ms = self.uptime.now_ms()
            self._is_erasing = not self._session.pause(now_ms)
            if not self._is_erasing:
                self.log.idle()
                self._session.resume(self.uptime.now_ms())
        self._tell_bad_records()

    def _tell_losses(self) -> bool:
        """Whether there is a new message that tells of one."""
        if not self._losses:
            if not self.log.gaps():
                return False
            from device.losses import Losses  # most devices never lose anything

            self._losses.append(Losses(self.log, self._tell))
        try:
            return self._losses[0].advance()
        except StoreFull:
            return False  # it is forgotten later

    def _tell(self, samples: list) -> int | None:
        return self.sampler.tell(samples, self.uptime.now_ms())

    def _tell_bad_records(self) -> None:
        count = self.log.bad_records
        if count > self._bad_records:
            self.say(f"flash: {count - self._bad_records} bad record(s) skipped, {count} since the start")
        self._bad_records = count

    def _greet(self, journal) -> None:
        self.say(
            f"{self.config.client_id}: boot {self.log.boot_id}, epoch {self.log.epoch:08x}, "
            f"{len(self.log)} messages to send, {journal.made} readings made"
        )
        self._tell_bad_records()

    def _make_probes(self) -> list:
        return [Probe(sensor) for sensor in self.config.sensors]

    def _make_port(self, config):
        from device.assembly import make_port

        port = make_port(config, self._poller, self.log.boot_id, self.board, self._watchdog)
        if self._session is not None:  # another broker's turn
            memory.leave("device.assembly")
        return port

"""While flash is erased a board reads nothing from its line, so that the device asks for silence first."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from device.ports.uart import Uart
from tests.device.firmware import seqs
from tests.device.mqtt.virtual import VirtualBoard, VirtualDevice
from tests.support.scripted_broker import ScriptedBroker
from tools.lab.sim.nor import Operation
from wire.connection.server import ServerConnection
from wire.link import Link, LinkData, LinkDown, LinkUp

COMMANDS = "commands/garage"
ERASE_MS = 400
TURN_MS = 10


class Gateway:
    """The far end of a line, at a broker that has something to say all the time."""

    def __init__(self, descriptor: int, broker: ScriptedBroker) -> None:
        self._descriptor = descriptor
        self._broker = broker
        self._link = Link(2)
        self._link.open(0)
        self._server: ServerConnection | None = None
        self.resets = 0
        self.said = 0

    def advance(self, now_ms: int) -> None:
        with suppress(BlockingIOError):
            self._link.receive_data(os.read(self._descriptor, 65_536), now_ms)
        self._link.handle_timer(now_ms)
        while (event := self._link.next_event()) is not None:
            self._handle(event)
        if self._server is not None:
            if self._server.connected and self.said < len(self._broker.publishes[-1]) + 20:
                self.said += 1
                self._server.publish(COMMANDS, b"open", qos=0)
            self._link.send(self._server.data_to_send(), now_ms)
        while data := self._link.data_to_send():
            os.write(self._descriptor, data)

    def _handle(self, event: Any) -> None:
        if isinstance(event, LinkUp):
            self._server = ServerConnection()
        elif isinstance(event, LinkDown):
            self.resets += 1
        elif isinstance(event, LinkData):
            assert self._server is not None
            self._server.receive_data(event.data, 0)
            while (packet := self._server.next_event()) is not None:
                self._broker.answer(self._server, packet)


class SerialDevice(VirtualDevice):
    """A device at the end of a line, on which bytes are lost while its flash is erased: `lost` are those."""

    def __init__(self, board: VirtualBoard, broker: ScriptedBroker, terminals: tuple[int, int], **change: Any) -> None:
        master, self._slave = terminals
        self.gateway = Gateway(master, broker)
        self.lost = b""
        self.erases = 0
        board.flash.before_operation = self._note
        super().__init__(board, broker, lambda topic, payload: {"door": "open"}, **change)

    def _make_port(self, _config: object) -> Uart:  # type: ignore[override]
        return Uart(os.ttyname(self._slave), 115_200, self._poller, self.log.boot_id)

    def _wait(self, timers_ms: list[int | None]) -> bool:
        self.gateway.advance(self.board.now_ms)
        found = self._poller.poll(0)
        if not found:
            self.board.now_ms += TURN_MS
        self._ready = found[0][1] if found else 0
        return bool(found)

    def _note(self, operation: Operation) -> None:
        if not operation.is_erase or self._session is None or not self._session.attached:
            return
        self.erases += 1
        for _ in range(0, ERASE_MS, TURN_MS):
            self.board.now_ms += TURN_MS
            self.gateway.advance(self.board.now_ms)
        with suppress(BlockingIOError):
            self.lost += os.read(self._slave, 65_536)


@contextmanager
def terminals() -> Iterator[tuple[int, int]]:
    master, slave = os.openpty()
    for descriptor in (master, slave):
        os.set_blocking(descriptor, False)
    try:
        yield master, slave
    finally:
        os.close(master)
        os.close(slave)


def test_nothing_is_lost_while_flash_is_erased_however_much_comes() -> None:
    board, broker = VirtualBoard(8), ScriptedBroker()
    with terminals() as ends:
        device = SerialDevice(board, broker, ends, commands=COMMANDS)
        assert device.run(lambda: device.erases >= 20, 3600)
        device.close()
        assert device.lost == b""
        assert device.gateway.resets == 0
        numbers = seqs(broker.publishes[0])
        assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) > 100

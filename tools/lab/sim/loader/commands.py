"""The commands of a ROM loader, and of the stub that esptool loads into the chip's RAM.

The stub itself is code for the chip, which nothing here can run. So the loader believes that what was uploaded is the
stub, and speaks its protocol from then on: replies of two status bytes instead of four, and the commands for reading
and erasing.
"""

import hashlib
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from tools.lab.sim.loader.chips import Chip
from tools.lab.sim.loader.flash_file import BLOCK_SIZE, SECTOR_SIZE, FlashFile
from tools.lab.sim.loader.registers import Registers
from tools.lab.sim.loader.slip import frame

FLASH_BEGIN, FLASH_DATA, FLASH_END = 0x02, 0x03, 0x04
MEM_BEGIN, MEM_END, MEM_DATA = 0x05, 0x06, 0x07
SYNC, WRITE_REG, READ_REG = 0x08, 0x09, 0x0A
SPI_SET_PARAMS, SPI_ATTACH, READ_FLASH_SLOW, CHANGE_BAUDRATE = 0x0B, 0x0D, 0x0E, 0x0F
FLASH_DEFL_BEGIN, FLASH_DEFL_DATA, FLASH_DEFL_END = 0x10, 0x11, 0x12
SPI_FLASH_MD5, GET_SECURITY_INFO = 0x13, 0x14
ERASE_FLASH, ERASE_REGION, READ_FLASH = 0xD0, 0xD1, 0xD2  # only the stub has these

REQUEST, RESPONSE = 0, 1
HEADER = struct.Struct("<BBHI")
CHECKSUM_SEED = 0xEF
SYNC_VALUE = 0x2012_0707  # any but 0, by which esptool would take it for the stub
SYNC_REPLIES = 8
READ_SLOW_BYTES = 64
LONGEST_PACKET = 0x1_0000 + HEADER.size
INVALID, FAILED, BAD_CHECKSUM, BAD_DEFLATE = 0x05, 0x06, 0x07, 0x0B
STUB_GREETING = b"OHAI"
CRASH = b"\r\nFatal exception (0): IllegalInstruction\r\nepc1=0x4008a5f4, epc2=0x00000000, excvaddr=0x00000000\r\n"


class Refused(Exception):
    """A command that the loader answers with an error; the argument is the error's number."""


@dataclass
class Upload:
    """What a BEGIN command has announced."""

    address: int
    end: int
    block_size: int
    inflater: "zlib._Decompress | None" = None
    blocks_seen: int = 0
    erased_to: int = 0


@dataclass
class Reading:
    """A READ_FLASH of the stub under way."""

    address: int
    size: int
    packet_size: int
    unanswered_max: int
    sent: int = 0
    answered: int = 0


class Commands:
    """Executes the packets of the host on a flash chip, and returns what is to be sent.

    Args:
        on_baud: called with the new speed of the line, after the reply to the command that asks for it.
        on_start: called when the host asks to leave the loader for the program on the flash.
        on_watchdog: called when the host starts the watchdog, which resets the chip soon.
        runs_stub: whether what is uploaded to RAM starts; if not, the chip crashes and starts its program.

    Attributes:
        is_stub: whether the stub runs, rather than the ROM.
        is_used: whether anything but SYNC was executed.
    """

    def __init__(
        self,
        chip: Chip,
        flash: FlashFile,
        on_baud: Callable[[int], None],
        on_start: Callable[[], None],
        on_watchdog: Callable[[], None],
        runs_stub: bool = True,
    ) -> None:
        self.is_stub = self.is_used = False
        self._chip, self._flash = chip, flash
        self._registers = Registers(chip, flash, on_watchdog)
        self._on_baud, self._on_start, self._runs_stub = on_baud, on_start, runs_stub
        self._upload: Upload | None = None
        self._reading: Reading | None = None
        self._memory: list[range] = []  # what was uploaded to RAM

    def take(self, packet: bytes) -> bytes:
        """Executes one packet; returns the bytes of the reply, frames and all. Raises PowerCut."""
        if self._reading is not None:
            return self._go_on_reading(packet)
        if len(packet) < HEADER.size or packet[0] != REQUEST:
            return b""
        _, command, size, checksum = HEADER.unpack_from(packet)
        self.is_used = self.is_used or command != SYNC
        body = packet[HEADER.size :]
        if len(body) != size:
            return self._reply(command, error=INVALID)
        handler = self._HANDLERS.get(command)
        if handler is None or (command in self._STUB_ONLY and not self.is_stub):
            return self._reply(command, error=INVALID)
        try:
            return handler(self, command, body, checksum)
        except Refused as refused:
            return self._reply(command, error=refused.args[0])
        except (ValueError, struct.error):  # outside the flash, or too few words
            return self._reply(command, error=INVALID)

    def _reply(self, command: int, value: int = 0, data: bytes = b"", error: int = 0) -> bytes:
        status = bytes([bool(error), error])
        if not self.is_stub:
            status += bytes(2)
        body = data + status
        return frame(HEADER.pack(RESPONSE, command, len(body), value) + body)

    def _sync(self, command: int, body: bytes, checksum: int) -> bytes:
        return self._reply(command, 0 if self.is_stub else SYNC_VALUE) * SYNC_REPLIES

    def _read_register(self, command: int, body: bytes, checksum: int) -> bytes:
        return self._reply(command, self._registers.read(*struct.unpack("<I", body)))

    def _write_register(self, command: int, body: bytes, checksum: int) -> bytes:
        for address, value, mask, _ in struct.iter_unpack("<IIII", body):
            self._registers.write(address, value, mask)
        return self._reply(command)

    def _security(self, command: int, body: bytes, checksum: int) -> bytes:
        if not self._chip.tells_security:
            raise Refused(INVALID)
        return self._reply(command, data=struct.pack("<IB7sII", 0, 0, bytes(7), self._chip.image_id, 0))

    def _accept(self, command: int, body: bytes, checksum: int) -> bytes:
        """Nothing to do here: SPI_ATTACH and SPI_SET_PARAMS, as the flash is always there."""
        return self._reply(command)

    def _change_baud(self, command: int, body: bytes, checksum: int) -> bytes:
        self._on_baud(struct.unpack_from("<I", body)[0])
        return self._reply(command)

    def _memory_begin(self, command: int, body: bytes, checksum: int) -> bytes:
        size, _, block_size, address = struct.unpack("<IIII", body)
        self._upload = Upload(address, address + size, block_size)
        self._memory.append(range(address, address + size))
        return self._reply(command)

    def _memory_data(self, command: int, body: bytes, checksum: int) -> bytes:
        self._block(body, checksum)
        return self._reply(command)

    def _memory_end(self, command: int, body: bytes, checksum: int) -> bytes:
        is_stay, entry = struct.unpack("<II", body)
        reply = self._reply(command)
        if is_stay or not any(entry in uploaded for uploaded in self._memory):
            return reply
        if not self._runs_stub:
            self._on_start()
            return reply + CRASH
        self.is_stub = True
        return reply + frame(STUB_GREETING)

    def _flash_begin(self, command: int, body: bytes, checksum: int) -> bytes:
        size, _, block_size, address = struct.unpack_from("<IIII", body)
        inflater = zlib.decompressobj() if command == FLASH_DEFL_BEGIN else None
        self._upload = Upload(address, address + size, block_size, inflater, erased_to=address)
        if address + size > self._flash.size:
            raise Refused(FAILED)
        if not self.is_stub:
            self._erase_to(self._upload, address + size)
        return self._reply(command)

    def _flash_data(self, command: int, body: bytes, checksum: int) -> bytes:
        content = self._block(body, checksum)
        upload = self._upload
        assert upload is not None
        if command == FLASH_DATA:
            address = upload.address + (upload.blocks_seen - 1) * upload.block_size
        else:
            if upload.inflater is None:
                raise Refused(FAILED)
            try:
                content = upload.inflater.decompress(content)
            except zlib.error:
                raise Refused(BAD_DEFLATE) from None
            address = upload.address
            upload.address += len(content)
        if self.is_stub:
            self._erase_to(upload, address + len(content))
        self._flash.program(address, content)
        return self._reply(command)

    def _erase_to(self, upload: Upload, end: int) -> None:
        """Erases the sectors before `end` that this upload has not erased yet; the stub does so as it writes, whole
        blocks where the upload goes on so far."""
        while upload.erased_to < end:
            at = upload.erased_to
            is_block = not at % BLOCK_SIZE and at + BLOCK_SIZE <= upload.end
            size = BLOCK_SIZE if is_block else SECTOR_SIZE - at % SECTOR_SIZE
            self._flash.erase(at, size)
            upload.erased_to = at + size

    def _block(self, body: bytes, checksum: int) -> bytes:
        """The content of a DATA packet; a packet that comes twice, or out of order, is refused."""
        size, number = struct.unpack_from("<II", body)
        content = body[16:]
        if self._upload is None or len(content) != size:
            raise Refused(INVALID)
        expected = CHECKSUM_SEED
        for byte in content:
            expected ^= byte
        if checksum & 0xFF != expected:
            raise Refused(BAD_CHECKSUM)
        if number != self._upload.blocks_seen:
            raise Refused(FAILED)
        self._upload.blocks_seen += 1
        return content

    def _flash_end(self, command: int, body: bytes, checksum: int) -> bytes:
        is_stay = bool(struct.unpack_from("<I", body)[0])
        reply = self._reply(command)
        self._upload = None
        if not self.is_stub:
            self._on_start()
        elif not is_stay:  # the stub gives the chip back to the ROM's loader
            self.is_stub = False
        return reply

    def _md5(self, command: int, body: bytes, checksum: int) -> bytes:
        address, size, _, _ = struct.unpack("<IIII", body)
        digest = hashlib.md5(self._flash.read(address, size))
        return self._reply(command, data=digest.digest() if self.is_stub else digest.hexdigest().encode())

    def _read_slow(self, command: int, body: bytes, checksum: int) -> bytes:
        address, size = struct.unpack("<II", body)
        if self.is_stub or size > READ_SLOW_BYTES:
            raise Refused(INVALID)
        return self._reply(command, data=self._flash.read(address, size).ljust(READ_SLOW_BYTES, b"\0"))

    def _erase_all(self, command: int, body: bytes, checksum: int) -> bytes:
        self._flash.erase(0, self._flash.size)
        return self._reply(command)

    def _erase_region(self, command: int, body: bytes, checksum: int) -> bytes:
        address, size = struct.unpack("<II", body)
        if address % SECTOR_SIZE or size % SECTOR_SIZE:
            raise Refused(FAILED)
        self._flash.erase(address, size)
        return self._reply(command)

    def _read_flash(self, command: int, body: bytes, checksum: int) -> bytes:
        address, size, packet_size, unanswered_max = struct.unpack("<IIII", body)
        self._flash.read(address, size)  # refused outside the chip
        self._reading = Reading(address, size, packet_size, unanswered_max * packet_size)
        return self._reply(command) + self._more_of(self._reading)

    def _go_on_reading(self, packet: bytes) -> bytes:
        reading = self._reading
        assert reading is not None
        if len(packet) != 4:
            self._reading = None
            return b""
        reading.answered = int.from_bytes(packet, "little")
        more = self._more_of(reading)
        if reading.answered >= reading.size:
            self._reading = None
            more += frame(hashlib.md5(self._flash.read(reading.address, reading.size)).digest())
        return more

    def _more_of(self, reading: Reading) -> bytes:
        frames = []
        while reading.sent < reading.size and reading.sent - reading.answered < reading.unanswered_max:
            size = min(reading.packet_size, reading.size - reading.sent)
            frames.append(frame(self._flash.read(reading.address + reading.sent, size)))
            reading.sent += size
        return b"".join(frames)

    _HANDLERS: ClassVar[dict[int, Callable[["Commands", int, bytes, int], bytes]]] = {
        FLASH_BEGIN: _flash_begin,
        FLASH_DATA: _flash_data,
        FLASH_END: _flash_end,
        MEM_BEGIN: _memory_begin,
        MEM_END: _memory_end,
        MEM_DATA: _memory_data,
        SYNC: _sync,
        WRITE_REG: _write_register,
        READ_REG: _read_register,
        SPI_SET_PARAMS: _accept,
        SPI_ATTACH: _accept,
        READ_FLASH_SLOW: _read_slow,
        CHANGE_BAUDRATE: _change_baud,
        FLASH_DEFL_BEGIN: _flash_begin,
        FLASH_DEFL_DATA: _flash_data,
        FLASH_DEFL_END: _flash_end,
        SPI_FLASH_MD5: _md5,
        GET_SECURITY_INFO: _security,
        ERASE_FLASH: _erase_all,
        ERASE_REGION: _erase_region,
        READ_FLASH: _read_flash,
    }
    _STUB_ONLY: ClassVar[set[int]] = {ERASE_FLASH, ERASE_REGION, READ_FLASH}

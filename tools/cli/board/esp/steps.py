"""The steps for an ESP32: look, decide, rescue, write, read back, start."""

from collections.abc import Sequence
from dataclasses import dataclass

from esp_idf_defs.partitions import APP_TYPE, DATA_TYPE, PARTITION_TABLE_OFFSET, PartitionTable

from flash_store.devices.esp32 import SUBTYPE_UNDEFINED
from tools.cli.board.console import Answer, Console
from tools.cli.board.content import board_files, compiled, named_files
from tools.cli.board.errors import BoardError, Refused
from tools.cli.board.esp.firmware import (
    HEAD_BYTES as PROGRAM_HEAD_BYTES,
)
from tools.cli.board.esp.firmware import (
    MICROPYTHON,
    Firmware,
    describe_program,
    read_firmware,
    size_text,
)
from tools.cli.board.esp.image import HEAD_BYTES, image_pieces, make_image
from tools.cli.board.esp.images import check_kind
from tools.cli.board.esp.layout import choose_layout, is_torn, parse_table
from tools.cli.board.esp.loader import Chip, Loader, Piece
from tools.cli.board.esp.plan import Found, Plan, Wanted, make_plan
from tools.cli.board.esp.root import names_in_root
from tools.cli.board.forms import check_fits
from tools.cli.board.progress import Progress
from tools.cli.board.rescue import check_lent, name_note, rescue_region
from tools.cli.board.settings import Settings
from tools.cli.board.stores import BLANK, SECTOR_BYTES, Region, find_stores, look_into
from tools.cli.device.build import Board
from tools.cli.device.check_config import warnings

CHUNK_BYTES = 64 * 1024
USUAL_PROGRAM = 0x10000


@dataclass(frozen=True)
class _Look:
    """What the first look at a board has shown."""

    chip: Chip
    table: PartitionTable | None
    is_torn: bool
    version: str
    program: str


class Esp32:
    """Flashes one board. Its methods raise Refused and BoardError."""

    def __init__(self, settings: Settings, progress: Progress) -> None:
        self._settings, self._progress = settings, progress
        self._loader = Loader(settings.port, settings.baud, progress.show)

    def flash(self) -> None:
        """Writes what is missing and starts the board's firmware."""
        settings, progress = self._settings, self._progress
        firmware = None if settings.micropython is None else read_firmware(settings.micropython)
        with progress.step("looked at the board"):
            look = self._look()
        progress.say(_describe(look))
        self._check(look, firmware)
        settings.claim(look.chip.mac)
        layout = choose_layout(look.chip, firmware, look.table, settings.keys)
        files = board_files(settings.config, settings.keys, compiled(Board.ESP32, progress), settings.given)
        pieces = [*(firmware.pieces() if firmware else []), *layout.table_pieces()]
        image = image_pieces(make_image(files, len(layout.files)), layout.files.start)
        wanted = Wanted(
            layout,
            pieces,
            image,
            own_names=[name.partition("/")[0] for name in named_files(settings.keys)],
            rescues=settings.rescue is not None,
            discards=settings.discards,
            replaces=settings.replaces,
        )
        with progress.step("looked for what must not be lost"):
            found = self._find(look, wanted)
        plan = make_plan(found, wanted)
        for text in plan.says:
            progress.say(text)
        for region in found.regions:
            if region.area == layout.store and not (settings.rescue or settings.discards):
                progress.say(name_note(region, settings.keys.client_id))
        self._keep_messages(plan, layout.files)
        self._write(plan, firmware, layout.files.start)
        if not plan.written and not plan.image:
            progress.say("the board has all of it already")
            return
        with progress.step("read everything back"):
            self._verify([*pieces, *image])

    def _look(self) -> _Look:
        chip = self._loader.look()
        content = self._loader.read(PARTITION_TABLE_OFFSET, USUAL_PROGRAM - PARTITION_TABLE_OFFSET + SECTOR_BYTES)
        sector = content[:SECTOR_BYTES]
        table = parse_table(sector)
        version = program = ""
        if table is not None:
            begin = min((one.offset for one in table if one.type == APP_TYPE), default=None)
            if begin == USUAL_PROGRAM:
                version, program = describe_program(content[USUAL_PROGRAM - PARTITION_TABLE_OFFSET :])
            elif begin is not None:
                version, program = describe_program(self._loader.read(begin, PROGRAM_HEAD_BYTES))
        return _Look(chip, table, is_torn(sector), version, program)

    def _check(self, look: _Look, firmware: Firmware | None) -> None:
        kind = check_kind(self._settings.config, self._settings.keys, look.chip.title)
        if kind is None and not look.chip.title.startswith("ESP32"):
            raise Refused(f"{self._settings.port}: the board has an {look.chip.title}, expected an ESP32")
        for text in warnings(self._settings.keys, kind) if kind is not None else ():
            self._progress.say(f"warning: {text}")
        if firmware is None and look.program != MICROPYTHON:
            raise Refused(
                f"{self._settings.port}: the board has no MicroPython; give its .bin file for an {look.chip.title} "
                "with --micropython"
            )

    def _find(self, look: _Look, wanted: Wanted) -> Found:
        named = _named_stores(look)
        home = wanted.layout.store
        areas = [*named, *([home] if home is not None and home not in named else [])]
        files = wanted.layout.files
        head = range(files.start, files.start + HEAD_BYTES)
        rest = _chunks(range(head.stop, files.stop))
        chunks = [head, *rest, *(chunk for area in areas for chunk in _chunks(area))]
        blanks: list[Piece] = [(chunk.start, BLANK * len(chunk)) for chunk in chunks]
        same = self._loader.compare([*wanted.pieces, *wanted.image, *blanks])
        count = len(wanted.pieces) + len(wanted.image)
        used = [chunk for chunk, is_blank in zip(chunks, same[count:], strict=True) if not is_blank]
        regions = [self._region(area, used, named) for area in areas]
        if look.table is None:
            regions += self._search([chunk for chunk in used if chunk in rest], home)
        content = self._read(head) if head in used else BLANK * HEAD_BYTES
        return Found(
            has_table=look.table is not None,
            is_torn=look.is_torn,
            program=look.program,
            head=content,
            names=names_in_root(content, SECTOR_BYTES),
            is_rest_blank=not any(chunk in used for chunk in rest),
            regions=regions,
            same=same[:count],
        )

    def _region(self, area: range, used: Sequence[range], named: Sequence[range]) -> Region:
        """What is in a store's place. Part of another store is no store: numbers of sectors count from its begin."""
        if not any(area.start <= chunk.start < area.stop for chunk in used):
            return Region(area.start, len(area), area in named, None, "")
        if area not in named and any(area.start < one.stop and one.start < area.stop for one in named):
            return Region(area.start, len(area), False, None, "a part of another store")
        return look_into(self._read(area), area.start, area in named)

    def _search(self, chunks: Sequence[range], home: range | None) -> list[Region]:
        """Looks for stores where no table says where one may be."""
        found = []
        for run in _joined(chunks):
            part = range(
                run.start, min(run.stop, home.start) if home is not None and home.start > run.start else run.stop
            )
            found += find_stores(self._read(part), part.start)
        return found

    def _read(self, area: range) -> bytes:
        return self._loader.read(area.start, len(area))

    def _keep_messages(self, plan: Plan, files: range) -> None:
        """Sends what is to be rescued, and ends the board's firmware before a store goes: it may make more messages."""
        for region in plan.rescued:
            check_lent(region, self._settings)
        for region in plan.rescued:
            rescue_region(region, self._settings, self._progress)
        if plan.gone:
            with self._progress.step("stopped the board's firmware"):
                self._loader.erase(files.start, HEAD_BYTES)
            again = [
                look_into(self._read(range(one.offset, one.offset + one.size)), one.offset, True) for one in plan.gone
            ]
            if self._settings.rescue is not None:
                for now, then in zip(again, plan.gone, strict=True):
                    if now.store != then.store:
                        self._rescue_late(now)
            elif any(now.unacknowledged for now in again):
                raise BoardError(
                    f"{self._settings.port}: the board has made messages meanwhile, which no broker has acknowledged. "
                    "They are still there; repeat the command"
                )

    def _rescue_late(self, region: Region) -> None:
        try:
            rescue_region(region, self._settings, self._progress)
        except Refused as error:  # the firmware is stopped already
            raise BoardError(str(error)) from error

    def _write(self, plan: Plan, firmware: Firmware | None, head: int) -> None:
        progress, loader = self._progress, self._loader
        for area in plan.erased:
            with progress.step(f"erased {size_text(len(area))} at 0x{area.start:x}"):
                loader.erase(area.start, len(area))
        if plan.written:
            size = sum(len(content) for _, content in plan.written)
            version = f"MicroPython {firmware.version}, " if firmware and len(plan.written) > 1 else ""
            with progress.step(f"wrote {version}{size // 1024} KiB"):
                loader.write(plan.written)
        if plan.asks:
            loader.erase(head, HEAD_BYTES, starts=True)
            with progress.step("asked the board what it can execute"):
                answer = Console(self._settings.port).ask()
            progress.say(_describe_answer(answer))
            if answer.platform != "esp32":
                raise BoardError(f"{self._settings.port}: the board calls itself {answer.platform}, expected esp32")
            progress.say(check_fits(answer, self._settings.keys))
        if plan.image:
            size = sum(len(content) for _, content in plan.image)
            with progress.step(f"wrote firmware, configuration and keys, {size // 1024} KiB"):
                loader.erase(head, HEAD_BYTES)
                loader.write(plan.image)

    def _verify(self, pieces: Sequence[Piece]) -> None:
        same = self._loader.compare(pieces)
        wrong = [f"0x{at:x}" for (at, _), is_same in zip(pieces, same, strict=True) if not is_same]
        if wrong:
            raise BoardError(
                f"{self._settings.port}: what was written at {', '.join(wrong)} reads back differently; the flash chip "
                "is faulty, or something else writes to it"
            )

    def start(self) -> None:
        """Starts the board's firmware."""
        self._loader.start()


def _named_stores(look: _Look) -> list[range]:
    """Where the board's own table has partitions that only a program uses, as a store is one."""
    if look.table is None:
        return []
    found = [one for one in look.table if one.type == DATA_TYPE and one.subtype == SUBTYPE_UNDEFINED]
    return [range(one.offset, one.offset + one.size) for one in found if one.offset + one.size <= look.chip.flash_size]


def _chunks(area: range) -> list[range]:
    """The area in parts, each within one chunk of the flash."""
    found = []
    at = area.start
    while at < area.stop:
        end = min(area.stop, (at // CHUNK_BYTES + 1) * CHUNK_BYTES)
        found.append(range(at, end))
        at = end
    return found


def _joined(chunks: Sequence[range]) -> list[range]:
    """Chunks that follow each other as one."""
    found: list[range] = []
    for chunk in chunks:
        if found and found[-1].stop == chunk.start:
            found[-1] = range(found[-1].start, chunk.stop)
        else:
            found.append(chunk)
    return found


def _describe(look: _Look) -> str:
    there = f"{look.program} {look.version}".strip() or ("no program" if look.table is not None else "nothing on it")
    if look.program == MICROPYTHON:
        there = f"MicroPython {look.version}"
    return f"{look.chip.title}, {size_text(look.chip.flash_size)} of flash, {there}"


def _describe_answer(answer: Answer) -> str:
    version = ".".join(map(str, answer.version))
    return f"{answer.machine}: MicroPython {version}, {answer.heap // 1024} KiB of heap"

"""SPEC.md says what the code does: its tables, its rules' names, and its worked example byte for byte."""

import re
from itertools import combinations

import pytest

from flash_store import record, sector
from flash_store.devices.ram import RamFlash
from flash_store.incoming import Incoming
from flash_store.log import Log
from tools.cli.flash.layout import (
    NAMES,
    Free,
    Open,
    Record,
    RecordReader,
    open_offset,
    parse_free,
    parse_open,
    sector_seed,
)
from tools.cli.flash.reader import read_store
from tools.cli.paths import source_root

STORE = source_root() / "flash_store"
SPEC = (STORE / "SPEC.md").read_text()
(PROGRAM,) = re.findall(r"^```python\n(.*?)^```", SPEC, re.MULTILINE | re.DOTALL)
(LISTING,) = re.findall(r"^```hex\n(.*?)^```", SPEC, re.MULTILINE | re.DOTALL)
RESULT = SPEC[SPEC.index(LISTING) + len(LISTING) :]
SECTOR_SIZE, GRANULE = 256, 16
TYPES = {"2 bytes": 2, "u8": 1, "u16": 2, "u32": 4}


def table(after: str) -> list[list[str]]:
    """The rows of the first table behind this text."""
    lines = SPEC[SPEC.index(after) :].splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("|---"))
    rows = []
    for line in lines[first + 1 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return rows


KINDS = {row[1]: int(row[0], 16) for row in table("| kind (hex) |")}


@pytest.fixture(scope="module")
def device() -> RamFlash:
    """The device after the example's calls."""
    names: dict = {"RamFlash": RamFlash, "Log": Log, "Incoming": Incoming}
    exec(PROGRAM, names)
    return names["device"]


@pytest.fixture(scope="module")
def image(device: RamFlash) -> bytes:
    content = bytearray(SECTOR_SIZE * device.sector_count)
    for number in range(device.sector_count):
        device.readblocks(number, memoryview(content)[number * SECTOR_SIZE : (number + 1) * SECTOR_SIZE])
    return bytes(content)


def listed() -> tuple[bytes, dict[int, str]]:
    """The example's listing: the device's bytes, and the notes by offset."""
    content, notes = bytearray(b"\xff" * SECTOR_SIZE * 6), {}
    for line in LISTING.splitlines():
        found = re.fullmatch(r"([0-9a-f]{4})  ((?:[0-9a-f]{2} ?)+?)(?:  ; (.*))?", line)
        assert found, line
        at, piece = int(found[1], 16), bytes.fromhex(found[2])
        content[at : at + len(piece)] = piece
        if found[3]:
            notes[at] = found[3]
    return bytes(content), notes


def fields(name: str, header: object, *names: str) -> str:
    return f"{name}: " + ", ".join(f"{field} {getattr(header, field)}" for field in names)


def notes_of(number: int, content: bytes) -> dict[int, str]:
    """What begins where in a sector, in the words of the listing."""
    notes = {}
    free = parse_free(content)
    assert isinstance(free, Free)
    notes[0] = fields("FREE", free, "version", "granule", "erase_count") + f", epoch {free.epoch:08x}"
    opened = parse_open(content, free.granule, free.epoch)
    if isinstance(opened, Open):
        notes[open_offset(GRANULE)] = fields("OPEN", opened, "sector_seq", "tail_seq", "next_id", "boot_id")
        for found in RecordReader(number, content, GRANULE, sector_seed(free.epoch, opened.sector_seq)).scan():
            assert isinstance(found, Record)
            name = NAMES[found.header.kind]
            notes[found.offset] = fields(name, found.header, "flags", "length", "number", "aux")
    return {number * SECTOR_SIZE + at: note for at, note in notes.items()}


def test_the_example_makes_the_device_that_is_listed_byte_for_byte(image: bytes) -> None:
    assert image.hex(" ", 16) == listed()[0].hex(" ", 16)


def test_each_note_of_the_example_is_what_the_independent_reader_finds_there(image: bytes) -> None:
    found: dict[int, str] = {}
    for number in range(len(image) // SECTOR_SIZE):
        found |= notes_of(number, image[number * SECTOR_SIZE : (number + 1) * SECTOR_SIZE])
    assert found == listed()[1]


def test_both_readers_find_in_the_example_what_the_text_says(device: RamFlash, image: bytes) -> None:
    said = re.search(
        r"finds message (\d+) \(topic `(.+?)`, payload `(.+?)`, QoS (\d), PUBREC came\), the setting `(.+?)` and the "
        r"received packet\s+identifier (\d+), and is boot (\d+)",
        RESULT,
    )
    assert said
    message_id, qos, identifier, boot_id = (int(said[group]) for group in (1, 4, 6, 7))

    store = read_store(image, SECTOR_SIZE)
    (message,) = store.messages.values()
    assert (message.id, message.topic, message.payload, message.qos) == (message_id, said[2], said[3].encode(), qos)
    assert message.pubrec
    assert (list(store.settings), store.received) == ([said[5]], [identifier])
    assert store.next_mount.boot_id == boot_id

    log = Log(device)
    assert list(log.messages()) == [(message_id, qos, False, said[2], said[3].encode())]
    assert log.has_pubrec(message_id)
    assert (log.settings.keys(), Incoming(log.settings).identifiers) == ([said[5]], [identifier])
    assert log.boot_id == boot_id


def test_the_table_of_kinds_is_that_of_both_readers() -> None:
    assert {number: name for name, number in KINDS.items()} == NAMES
    assert {name: getattr(record, name) for name in KINDS} == KINDS
    believed = {kind for kind in range(256) if record.Header(kind, 0, 0, 0, 0, 0).is_plausible(1 << 16)}
    assert believed == set(KINDS.values())


def test_two_kinds_differ_in_two_bits_at_least() -> None:
    assert min((one ^ other).bit_count() for one, other in combinations(KINDS.values(), 2)) >= 2


@pytest.mark.parametrize(
    ("name", "size"),
    [("**FREE** is", sector.FREE_SIZE), ("**OPEN** is", sector.OPEN_SIZE), ("## Records", record.HEADER_SIZE)],
)
def test_fields_follow_each_other_and_fill_their_header(name: str, size: int) -> None:
    end = 0
    for row in table(name):
        if row[1] == "body":
            break
        assert int(row[0]) == end, row[1]
        end += next(width for start, width in TYPES.items() if row[2].startswith(start))
    assert end == size


def test_the_parts_of_a_sector_are_where_the_code_has_them() -> None:
    (_, free, free_size), (_, opened, open_size), _ = table("## Sectors")
    assert (free, opened) == ("FREE", "OPEN")
    assert free_size.startswith(f"{sector.FREE_SIZE}, padded to `pad({sector.FREE_SIZE})`")
    assert open_size.startswith(f"{sector.OPEN_SIZE}, padded to `pad({sector.OPEN_SIZE})`")


def test_every_rule_that_the_code_names_is_there() -> None:
    rules = set(re.findall(r"^- \*\*([A-Z]\d)\*\* ", SPEC, re.MULTILINE))
    for path in [*STORE.glob("*.py"), *(source_root() / "tools/cli/flash").glob("*.py")]:
        named = set(re.findall(r"\[([A-Z]\d)\]", path.read_text()))
        assert named <= rules, f"{path.name}: {named - rules}"

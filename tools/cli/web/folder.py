"""What is in the folder: a page, ESP Web Tools, its manifest, and the parts of the flash."""

import hashlib
import json
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template

from device.config import Config
from host.release import release
from tools.cli.board.content import board_files, compiled
from tools.cli.board.esp.firmware import Firmware, read_firmware, size_text
from tools.cli.board.esp.image import HEAD_BYTES, image_pieces, make_image
from tools.cli.board.esp.images import check_kind
from tools.cli.board.esp.layout import Layout, choose_layout
from tools.cli.board.esp.loader import Chip, Piece
from tools.cli.board.stores import BLANK
from tools.cli.columns import printable
from tools.cli.device.build import Board
from tools.cli.web.esp_web_tools import TESTED, EspWebTools

MANIFEST = "manifest.json"
PAGE = Path(__file__).with_name("page.html")
FIRMWARE = "Holdfast"  # as the device itself tells by Improv: so the page says "update", and erases nothing
IMPROV_WAIT_S = 20  # from the reset to the first answer; MicroPython makes its file system before it
TOLD = (
    "<b>The Wi-Fi.</b> When the board has started, this page asks for the Wi-Fi's name and password and sends them "
    "over the cable. You can change them later with the same button."
)
NOT_TOLD = "<b>The Wi-Fi</b> is the one in the device's configuration."


@dataclass(frozen=True)
class WebFolder:
    """The files by their names.

    Attributes:
        secret: the names of files that have the device's passwords and keys.
        parts: where each part of the flash belongs, in the order in which they are written.
    """

    files: dict[str, bytes]
    secret: list[str]
    parts: list[tuple[str, int]]
    layout: Layout


def make_folder(config: Path, keys: Config, micropython: Path, tools: EspWebTools) -> WebFolder:
    """Makes the folder's content. Raises Refused, OSError, BuildError, subprocess.CalledProcessError."""
    firmware = read_firmware(micropython)
    check_kind(config, keys, firmware.title)
    layout = choose_layout(Chip(firmware.title, firmware.flash_size), firmware, None, keys)
    image = make_image(board_files(config, keys, compiled(Board.ESP32)), len(layout.files))
    plain = [(layout.files.start, BLANK * HEAD_BYTES), *sorted([*firmware.pieces(), *layout.table_pieces()])]
    parts: list[tuple[str, int]] = []
    files: dict[str, bytes] = {}
    *rest, second, first = image_pieces(image, layout.files.start)
    for kind, pieces in (("micropython", plain), ("device", [_joined(rest), second, first])):
        for at, content in pieces:
            name = f"{len(parts)}-{kind}.bin"
            files[name] = content
            parts.append((name, at))
    marked = _marked_release(files)
    manifest = _manifest(firmware, marked, parts, keys)
    files[MANIFEST] = json.dumps(manifest, indent=1).encode() + b"\n"
    files["index.html"] = _page(keys, firmware, layout, marked, tools).encode()
    files |= {f"esp-web-tools/{name}": content for name, content in tools.files.items()}
    return WebFolder(files, [name for name, _ in parts if name.endswith("device.bin")], parts, layout)


def _joined(pieces: list[Piece]) -> Piece:
    """One piece with all of them, and blank sectors between."""
    begin = pieces[0][0]
    content = bytearray()
    for at, part in pieces:
        content += BLANK * (at - begin - len(content)) + part
    return begin, bytes(content)


def _marked_release(files: dict[str, bytes]) -> str:
    """The version with a mark of these files: to a browser another build is another version, which it may write."""
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return f"{release()}+{digest.hexdigest()[:8]}"


def _manifest(firmware: Firmware, marked: str, parts: list[tuple[str, int]], keys: Config) -> dict[str, object]:
    """See esphome.github.io/esp-web-tools. Without `new_install_prompt_erase` it would erase the whole chip unasked."""
    is_told = keys.field is not None and keys.field.improv
    return {
        "name": FIRMWARE,
        "version": marked,
        "new_install_prompt_erase": True,
        "new_install_improv_wait_time": IMPROV_WAIT_S if is_told else 0,
        "builds": [
            {"chipFamily": firmware.title, "parts": [{"path": name, "offset": at} for name, at in parts]},
        ],
    }


def _page(keys: Config, firmware: Firmware, layout: Layout, marked: str, tools: EspWebTools) -> str:
    ports = [one.path if one.kind == "uart" else f"{one.host}:{one.port}" for one in keys.ports]
    store = layout.store
    where = keys.flash_path if store is None else f"{size_text(len(store))} at 0x{store.start:x}"
    texts = {
        "client_id": keys.client_id,
        "gateway": ", ".join(ports),
        "chip": firmware.title,
        "flash": size_text(firmware.flash_size),
        "micropython": firmware.version,
        "version": marked,
        "store": where,
        "tools": tools.version if tools.version == TESTED else f"{tools.version}; {TESTED} is the tested one",
    }
    is_told = keys.field is not None and keys.field.improv
    wifi = TOLD if is_told else NOT_TOLD if keys.networks else ""
    escaped = {name: escape(printable(text)) for name, text in texts.items()}
    return Template(PAGE.read_text()).substitute(escaped, wifi=wifi)

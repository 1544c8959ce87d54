"""A ROMFS image: MicroPython's read-only filesystem, from which a board executes compiled modules in place.

A record has a kind, the length of its content, and the content. Numbers are in groups of 7 bits, the highest first. The
image is one record with the directories and files. A file is a record with its name and a record of its bytes.
"""

from collections.abc import Mapping

IMAGE = b"\xd2\xcd\x31"  # the encoded kind of the outermost record
DATA, DIRECTORY, FILE = 2, 4, 5


def encode_image(files: Mapping[str, bytes]) -> bytes:
    """Returns an image of files, given by their paths with `/` between folders; names are ASCII."""
    records = _encode_folder(files)
    length = _encode_number(len(records))
    if (len(IMAGE) + len(length) + len(records)) % 2:
        length = b"\x80" + length  # an image must have an even length
    return IMAGE + length + records


def _encode_folder(files: Mapping[str, bytes]) -> bytes:
    folders: dict[str, dict[str, bytes]] = {}
    records = b""
    for path, data in sorted(files.items()):
        folder, _, name = path.partition("/")
        if name:
            folders.setdefault(folder, {})[name] = data
        else:
            records += _encode_record(FILE, _encode_name(path) + _encode_record(DATA, data))
    for folder, inner in folders.items():
        records += _encode_record(DIRECTORY, _encode_name(folder) + _encode_folder(inner))
    return records


def _encode_record(kind: int, content: bytes) -> bytes:
    return _encode_number(kind) + _encode_number(len(content)) + content


def _encode_name(name: str) -> bytes:
    return _encode_number(len(name)) + name.encode("ascii")


def _encode_number(value: int) -> bytes:
    groups = [value & 0x7F]
    while value := value >> 7:
        groups.append(0x80 | value & 0x7F)
    return bytes(reversed(groups))

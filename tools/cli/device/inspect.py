"""``holdfast device inspect``: shows a device's store in a copy of its flash, and does not change the copy."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from device.mqtt.inbox import KEY as MESSAGE
from device.mqtt.settings import PLACE, SCRAM
from tools.cli.failure import fail
from tools.cli.flash.reader import read_store
from tools.cli.flash.store import (
    DAMAGED,
    DROPPED,
    FORSAKEN,
    MEMORY,
    REJECTED,
    TORN,
    UNREADABLE,
    Gap,
    Message,
    NextMount,
    NoStore,
    Sector,
    Store,
)

SECRETS = (PLACE, MESSAGE, SCRAM)  # a move, a command, the keys of a login
EXCERPT_BYTES = 48
REASONS = {
    DROPPED: "dropped for room",
    UNREADABLE: "unreadable",
    TORN: "left out after a torn record",
    FORSAKEN: "forsaken by the firmware",
    REJECTED: "rejected by the broker",
    MEMORY: "dropped for want of RAM",
    DAMAGED: "damaged: nothing is left of them",
}


def inspect(
    image: Annotated[
        Path,
        typer.Argument(
            metavar="IMAGE", help="A copy of the flash: a device's flash file, or a dump of a board's flash."
        ),
    ],
    sector_size: Annotated[int, typer.Option(min=64, help="How many bytes a sector has.")] = 4096,
    as_json_line: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Show the sectors, messages, settings and gaps in a copy of a device's flash. Ends with 1 if it has no store."""
    try:
        content = image.read_bytes()
    except OSError as error:
        fail("device inspect", f"cannot read {image}: {error.strerror}")
    try:
        store = read_store(content, sector_size)
    except NoStore as error:
        fail("device inspect", f"no store in {image}: {error}", exit_code=1)
    if as_json_line:
        print(json.dumps(_as_json(store)))
    else:
        _print_text(store)


def _print_text(store: Store) -> None:
    print(
        f"store {store.epoch:08x}: granule {store.granule}, {len(store.sectors)} sectors of {store.sector_size} bytes, "
        f"boot {store.boot_id}, last id {store.last_id}\n"
    )
    _print_sectors(store)
    acknowledged = f", acknowledged in the log: {len(store.acknowledged)}"
    _print_list("messages", map(_message_line, store.messages.values()), acknowledged)
    _print_list("settings", (f"{key} = {text}" for key, text in _settings(store).items()))
    _print_list("packet identifiers received, not released", map(str, store.received))
    _print_list("gaps", map(_gap_line, store.gaps))
    _print_list(
        "bad records",
        (f"at {bad.offset} (sector {bad.sector}), {bad.size} bytes: {bad.reason}" for bad in store.bad_records),
    )
    print(f"\nnext mount: boot {store.next_mount.boot_id}")
    for line in _mount_lines(store.next_mount):
        print(f"  {line}")


def _print_sectors(store: Store) -> None:
    columns = ("version", "erases", "sector_seq", "records", "live")
    print(f"{'sector':>6}  {'state':<8}  " + "  ".join(f"{name:>10}" for name in columns))
    for sector in store.sectors:
        fields = _sector_fields(sector)
        cells = "  ".join(f"{'' if fields[name] is None else fields[name]:>10}" for name in columns)
        print(f"{sector.number:>6}  {sector.state:<8}  {cells}  {sector.problem or ''}".rstrip())
    erases = _wear(store)
    print(f"wear: {erases['least']} to {erases['most']} erases of a sector, {erases['all']} in all")


def _print_list(title: str, lines: Iterable[str], note: str = "") -> None:
    lines = list(lines)
    print(f"\n{title}: {len(lines)}{note}")
    for line in lines:
        print(f"  {line}")


def _message_line(message: Message) -> str:
    marks = ", retain" * message.retain + ", PUBREC came" * message.pubrec
    return (
        f"{message.id} at {message.offset}: QoS {message.qos}{marks}, {message.topic}, "
        f"{len(message.payload)} bytes: {_excerpt(message.payload)}"
    )


def _gap_line(gap: Gap) -> str:
    ids = f"message {gap.first}" if gap.first == gap.last else f"{gap.count} of messages {gap.first} to {gap.last}"
    return f"{ids}: {REASONS.get(gap.reason, f'reason {gap.reason}')}"


def _mount_lines(mount: NextMount) -> list[str]:
    lines = []
    if mount.damaged:
        lines.append(f"finds nothing of {', '.join(map(str, mount.damaged))}: a gap tells so from then on")
    if mount.leaves_out is not None:
        lines.append(f"leaves out id {mount.leaves_out}: a torn record may have been sent with it")
    if mount.drops:
        lines.append(f"drops {', '.join(map(str, mount.drops))}: a gap has them, a cut spared them")
    lines += [f"erases sector {number} again before its use" for number in mount.erases]
    return lines


def _as_json(store: Store) -> dict[str, Any]:
    return {
        "epoch": store.epoch,
        "granule": store.granule,
        "sector_size": store.sector_size,
        "boot_id": store.boot_id,
        "last_id": store.last_id,
        "wear": _wear(store),
        "sectors": [_sector_fields(sector) for sector in store.sectors],
        "messages": [_message_fields(message) for message in store.messages.values()],
        "acknowledged": sorted(store.acknowledged),
        "settings": _settings(store),
        "received": store.received,
        "gaps": [vars(gap) for gap in store.gaps],
        "bad_records": [vars(bad) for bad in store.bad_records],
        "next_mount": vars(store.next_mount),
    }


def _sector_fields(sector: Sector) -> dict[str, Any]:
    return {
        "number": sector.number,
        "state": sector.state,
        "problem": sector.problem,
        "version": sector.free.version if sector.free else None,
        "erases": sector.free.erase_count if sector.free else None,
        "sector_seq": sector.sector_seq,
        "records": sector.records if sector.sector_seq else None,
        "live": sector.live if sector.sector_seq else None,
    }


def _wear(store: Store) -> dict[str, int]:
    """Returns the erase counts of the sectors with a readable header."""
    counts = [sector.free.erase_count for sector in store.sectors if sector.free]
    return {"least": min(counts), "most": max(counts), "all": sum(counts)}


def _settings(store: Store) -> dict[str, str]:
    """Returns an excerpt of each setting's value, and the size of one that may hold a password."""
    return {
        key: f"({len(found.value)} bytes, not shown)" if key.startswith(SECRETS) else _excerpt(found.value)
        for key, found in sorted(store.settings.items())
    }


def _excerpt(content: bytes) -> str:
    """Returns the first bytes of a payload or value, as text if they are printable, otherwise in hex."""
    start = content[:EXCERPT_BYTES]
    more = "…" if len(content) > EXCERPT_BYTES else ""
    text = start.decode(errors="ignore" if more else "replace")  # the excerpt may end within a character
    return (text if text.isprintable() and "\ufffd" not in text else f"0x{start.hex()}") + more


def _message_fields(message: Message) -> dict[str, Any]:
    return {
        "id": message.id,
        "qos": message.qos,
        "retain": message.retain,
        "pubrec": message.pubrec,
        "topic": message.topic,
        "size": len(message.payload),
        "payload": _excerpt(message.payload),
        "moved": message.moved,
        "offset": message.offset,
    }

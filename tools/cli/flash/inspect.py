"""``holdfast flash inspect``: what a device's store holds, from a copy of its flash; the copy is only read."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from tools.failure import fail
from tools.flash.reader import read_store
from tools.flash.report import as_json, excerpt, sector_fields, wear
from tools.flash.store import (
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
    Store,
)

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
            metavar="IMAGE", help="A copy of the flash: a device's flash file, or what was read from a board."
        ),
    ],
    sector_size: Annotated[int, typer.Option(min=64, help="How many bytes a sector has.")] = 4096,
    as_json_line: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Show the sectors, messages, settings and gaps in a copy of a device's flash. Ends with 1 if it has no store."""
    try:
        content = image.read_bytes()
    except OSError as error:
        fail("flash inspect", f"cannot read {image}: {error.strerror}")
    try:
        store = read_store(content, sector_size)
    except NoStore as error:
        fail("flash inspect", f"no store in {image}: {error}", exit_code=1)
    if as_json_line:
        print(json.dumps(as_json(store)))
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
    _print_list("settings", (f"{key} = {excerpt(found.value)}" for key, found in sorted(store.settings.items())))
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
        fields = sector_fields(sector)
        cells = "  ".join(f"{'' if fields[name] is None else fields[name]:>10}" for name in columns)
        print(f"{sector.number:>6}  {sector.state:<8}  {cells}  {sector.problem or ''}".rstrip())
    erases = wear(store)
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
        f"{len(message.payload)} bytes: {excerpt(message.payload)}"
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

"""Messages of stock clients get identities of the lander: dense, and the same one when a message comes again."""

import errno
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest

from cloud.landing.folder import LandingFolder, SyncFailed
from cloud.landing.held import Held, Piece
from tests.cloud.landing.running_lander import DEADLINE_S, RunningLander, landed, wait_until
from tests.cloud.landing.script import Visit, broker
from tests.cloud.messages import row
from tools.lab.testing.process import Process

Identity = tuple[str, int, int]


def identities(landing: Path) -> dict[bytes, set[Identity]]:
    """Returns the identities with which each payload landed."""
    found: dict[bytes, set[Identity]] = {}
    for one in landed(landing):
        found.setdefault(one["payload"], set()).add((one["origin"], one["epoch"], one["seq"]))
    return found


def seqs(landing: Path) -> list[int]:
    return [one["seq"] for one in landed(landing)]


def send(visit: Visit, first: int, last: int, dup: bool = False) -> None:
    for identifier in range(first, last + 1):
        visit.publish("x", b"reading %d" % identifier, identifier, dup=dup)


def run(scripts: list[Callable[[Visit], None]], landing: Path, **options: Any) -> RunningLander:
    """Runs a lander until the last script is over."""
    with broker(*scripts) as port:
        running = RunningLander(port, landing, "lander", **options)
    running.stop()
    return running


def test_a_lost_connection_leaves_no_numbers_that_never_were(landing: Path) -> None:
    def lose(visit: Visit) -> None:
        send(visit, 1, 5)

    def send_again(visit: Visit) -> None:
        send(visit, 1, 5, dup=True)
        visit.receive_pubacks(5)

    run([lose, lose, send_again], landing, roll_s=1.0)
    assert seqs(landing) == [1, 2, 3, 4, 5]


def test_a_message_keeps_its_identity_if_the_lander_is_killed_before_the_broker_reads_the_acknowledgement(
    landing: Path,
) -> None:
    killed = Event()

    def wait_for_the_kill(visit: Visit) -> None:
        send(visit, 1, 3)
        assert killed.wait(DEADLINE_S)

    def send_again(visit: Visit) -> None:
        send(visit, 1, 3, dup=True)
        send(visit, 4, 5)
        visit.receive_pubacks(5)

    with broker(wait_for_the_kill, send_again) as port:
        options = {"--broker": f"mqtt://127.0.0.1:{port}", "--landing": str(landing), "--roll-seconds": "0.1"}
        argv = [sys.executable, "-m", "tools.cli.main", "lander", "run", "--volatile"]
        process = Process("lander", [*argv, *[word for option in options.items() for word in option]])
        process.start()
        process.says("landed")
        process.kill()
        killed.set()
        running = RunningLander(port, landing, "lander-1")
    running.stop()
    found = identities(landing)
    assert {payload: len(one) for payload, one in found.items()} == {b"reading %d" % n: 1 for n in range(1, 6)}
    assert len({identity for one in found.values() for identity in one}) == 5
    assert sorted(seq for one in found.values() for _, _, seq in one) == [1, 1, 2, 2, 3]


def test_a_message_keeps_its_identity_if_the_connection_ends_before_the_broker_reads_the_acknowledgement(
    landing: Path,
) -> None:
    def close_when_landed(visit: Visit) -> None:
        send(visit, 1, 3)
        wait_until(lambda: bool(landed(landing)), "a landing file")

    def send_again(visit: Visit) -> None:
        send(visit, 1, 3, dup=True)
        send(visit, 4, 4)
        visit.receive_pubacks(4)

    run([close_when_landed, send_again], landing)
    found = identities(landing)
    assert {payload: sorted(seq for _, _, seq in one) for payload, one in found.items()} == {
        b"reading %d" % number: [number] for number in range(1, 5)
    }


def test_an_equal_message_under_a_packet_identifier_that_is_free_again_is_another_message(landing: Path) -> None:
    def acknowledge_then_lose(visit: Visit) -> None:
        visit.publish("x", b"on", 1)
        visit.receive_pubacks(1)
        visit.publish("x", b"on", 1)  # a new message, whose connection is lost before it lands

    def send_again(visit: Visit) -> None:
        visit.publish("x", b"on", 1, dup=True)
        visit.receive_pubacks(1)

    run([acknowledge_then_lose, send_again], landing, roll_s=0.5)
    assert seqs(landing) == [1, 2]


def give(landing: Path, boot: int, messages: int) -> set[Identity]:
    """Lands messages without identity in one start of a lander. Returns the identities that it gave."""
    folder = LandingFolder(landing, "lander-1", boot)
    described = folder.land([row(7, "garage"), *(row(0, "lander-1") for _ in range(messages))])
    folder.close()
    rows = pq.read_table(landing / described.file, columns=["origin", "epoch", "seq"]).to_pylist()
    return {(one["origin"], one["epoch"], one["seq"]) for one in rows if one["origin"] == "lander-1"}


def test_each_start_gives_numbers_from_1_in_an_epoch_of_its_own(landing: Path) -> None:
    assert give(landing, 0xA, 2) == {("lander-1", 0xA, 1), ("lander-1", 0xA, 2)}
    assert give(landing, 0xB, 1) == {("lander-1", 0xB, 1)}


def test_a_lander_on_an_older_copy_of_its_folder_gives_no_identity_twice(landing: Path, tmp_path: Path) -> None:
    given = [give(landing, 0xA, 2)]
    copy = shutil.copytree(landing, tmp_path / "copy")
    given += [give(landing, 0xB, 2), give(copy, 0xC, 2)]
    assert len(set.union(*given)) == 6


def test_a_file_that_may_count_although_its_sync_failed_keeps_its_numbers(
    landing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = LandingFolder(landing, "lander-1", 0xA)
    held = Held()
    for packet in (1, 2):
        held.add(Piece(row(0, "lander-1", b"%d" % packet), [packet], [packet]))
    synced, synced_folders = os.fsync, []

    def fail_behind_the_manifest(descriptor: int) -> None:
        if os.path.samefile(f"/proc/self/fd/{descriptor}", landing):
            synced_folders.append(descriptor)
            if len(synced_folders) == 2:
                raise OSError(errno.EIO, "Input/output error")
        synced(descriptor)

    monkeypatch.setattr(os, "fsync", fail_behind_the_manifest)
    with pytest.raises(SyncFailed, match="Input/output error") as raised:
        folder.land([piece.rows for piece in held.pieces], held.packets())
    held.replace_rows(raised.value.rows)
    held.add(Piece(row(0, "lander-1", b"3"), [3], [3]))
    folder.land([piece.rows for piece in held.pieces], held.packets())
    assert [(one["payload"], one["seq"]) for one in landed(landing)] == [
        (b"1", 1), (b"2", 2), (b"1", 1), (b"2", 2), (b"3", 3)
    ]  # fmt: skip
    found = [folder.own.find(packet, "telemetry/lander-1", b"%d" % packet) for packet in (1, 2, 3, 4)]
    assert found == [(0xA, 1), (0xA, 2), (0xA, 3), None]
    folder.close()


@pytest.mark.parametrize("packets", [[[0, 0, 1]], [[0, 1, 5]], [[-1, 1, 1]], [[0, 65535, 2]]])
def test_a_manifest_with_packet_identifiers_that_cannot_be_is_passed_over(
    landing: Path, packets: list[list[int]]
) -> None:
    folder = LandingFolder(landing, "lander-1", 0xA)
    described = folder.land([row(0, "lander-1"), row(0, "lander-1")], np.array([1, 2], np.uint16))
    folder.close()
    path = (landing / described.file).with_suffix(".json")
    fields = msgspec.json.decode(path.read_bytes())
    path.write_bytes(msgspec.json.encode(fields | {"own": fields["own"] | {"packets": packets}}))
    folder = LandingFolder(landing, "lander-1", 0xB)
    assert folder.own.oldest_file is None
    folder.close()


def test_a_message_that_the_publisher_retained_says_so(landing: Path) -> None:
    def publish(visit: Visit) -> None:
        assert visit.subscribe.filters[0][1] & 0x08, "Retain As Published"
        visit.publish("x", b"kept", 1, retain=True)
        visit.publish("x", b"not kept", 2)
        visit.receive_pubacks(2)

    run([publish], landing)
    assert [(one["payload"], one["retain"]) for one in landed(landing)] == [(b"kept", True), (b"not kept", False)]


def test_long_topics_fill_a_landing_file_as_payloads_do(landing: Path) -> None:
    """60 KB a message, so that 64 MiB are 1,100 of them."""

    def publish(visit: Visit) -> None:
        for identifier in range(1, 1301):
            visit.publish(f"{identifier:060000}", b"", identifier)
        visit.receive_pubacks(1000)

    running = run([publish], landing, roll_s=3600)
    assert "landed" in "".join(running.lines)


def test_what_the_lander_logs_of_a_message_is_quoted_and_short(landing: Path) -> None:
    forged = "x\nlander lander: landed \x1b[31m"

    def publish(visit: Visit) -> None:
        for identifier in range(1, 101):
            properties = {0x26: [("hf-id", "\n" + "e" * 5000), ("hf-received", "\x1b[2J/gw")]}
            visit.publish(forged, b"", identifier, properties=properties)
        visit.receive_pubacks(100)

    running = run([publish], landing, roll_s=0.5)
    running.wait_for("hf-id is not an identity")
    assert all(line.isprintable() and len(line) < 500 for line in running.lines), running.lines
    assert sum("hf-id is not an identity" in line for line in running.lines) == 1

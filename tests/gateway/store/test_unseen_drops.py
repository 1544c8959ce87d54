"""Drops that no operator has seen are remembered over restarts."""

from pathlib import Path

from gateway.store.unseen_drops import FILE, UnseenDrops


def test_a_mark_that_a_full_disk_left_empty_counts_after_a_restart(tmp_path: Path) -> None:
    (tmp_path / FILE).touch()
    drops = UnseenDrops(tmp_path)
    assert drops.since
    assert drops.see()
    assert not UnseenDrops(tmp_path).since

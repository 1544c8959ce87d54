"""A sample of the torture of boards that are flashed, and proof that it notices faults."""

import random
from pathlib import Path

import pytest

from tests.support.board_tools import NEEDS_BOARD_TOOLS
from tools.lab.micropython import MicroPython
from tools.lab.sim.whole.esp import WholeBoard
from tools.lab.torture.board.command import Torture
from tools.lab.torture.board.victim import STORE, Victim

pytestmark = NEEDS_BOARD_TOOLS


@pytest.mark.parametrize("boards", [1, pytest.param(3, marks=pytest.mark.long)])
def test_boards_that_are_cut_are_ready_after_a_repetition(
    boards: int, tmp_path: Path, micropython: MicroPython, seed: int
) -> None:
    torture = Torture()
    for number in range(boards):
        torture.run(micropython, tmp_path, number, seed)
    assert torture.violations == []
    assert torture.cuts + torture.missed == boards


def test_a_lost_message_and_a_changed_byte_are_noticed(tmp_path: Path, micropython: MicroPython, seed: int) -> None:
    class Damaged(Victim):
        def damage(self, board: WholeBoard) -> None:
            board.flash.program(STORE.start, bytes(len(STORE)))
            board.flash.program(0x10100, bytes(64))

    victim = Damaged(tmp_path / "board", micropython, random.Random(seed))
    victim.suffer()
    assert any("has other bytes" in text for text in victim.violations)
    assert any("the store is gone" in text for text in victim.violations)

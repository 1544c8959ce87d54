"""Questions on a terminal, with what a board or a gateway of the network has said in them."""

import io

import pytest

from tools.cli.new.questions import Questions


def test_what_a_board_says_in_a_question_does_not_command_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n1\n"))
    questions = Questions(has_person=True)
    assert questions.agrees("ds18b20 at pin 4, rom 28\x1b]0;owned\x07: use it")
    assert questions.choice(["shed\x1b[2J"], "gateway, or 0 to type another") == 0
    said = capsys.readouterr().out
    assert "rom 28?]0;owned?: use it [Y/n]" in said and "shed?[2J" in said
    assert all(one.isprintable() for one in said.splitlines())

"""What a program never names is left out, and the rest means what it meant."""

from pathlib import Path

from tests.tools.cli.build.programs import program, run
from tools.cli.build import prune

SOURCES = {
    "part": (
        "class Used:\n    __slots__ = ('_one',)\n    def __init__(self): self._one = 1\n"
        "    def named(self): return self._one\n    def never(self): return helper()\n"
        "    @property\n    def made(self): return 2\n"
        "def helper(): return 3\ndef by_text(): return 4\ndef lost(): return lost_too()\ndef lost_too(): return 5\n"
    ),
    "main": (
        "def run():\n    from part import Used, by_text\n    return Used().named(), by_text()\n"
        "def called_from_outside(): return 6\n"
    ),
}


def test_pruned_program_does_the_same(tmp_path: Path) -> None:
    pruned = prune(program(SOURCES), ("main",)).texts()
    assert run(tmp_path / "pruned", pruned) == run(tmp_path / "whole", SOURCES) == (1, 4)


def test_functions_that_only_dropped_ones_name_go_too_and_entries_stay() -> None:
    texts = prune(program(SOURCES), ("main",)).texts()
    assert not any(name in texts["part"] for name in ("never", "helper", "lost", "__slots__"))
    assert "def by_text" in texts["part"] and "def __init__" in texts["part"] and "def made" in texts["part"]
    assert "def called_from_outside" in texts["main"]


def test_methods_that_the_vm_calls_and_what_acts_when_it_is_loaded_stay(tmp_path: Path) -> None:
    sources = {
        "part": (
            "made = []\nclass Stream:\n    def readinto(self, buffer): return 0\n    def lost(self): pass\n"
            "class Lost:\n    made.append(1)\ndef lost_too(value=made.append(2)): pass\n"
        ),
        "main": "def run():\n    from part import Stream, made\n    return Stream, made\n",
    }
    pruned = prune(program(sources), ("main",)).texts()
    assert "def readinto" in pruned["part"] and "def lost(" not in pruned["part"]
    told = run(tmp_path, pruned)
    assert isinstance(told, tuple) and told[1] == [1, 2]


def test_class_that_loses_all_that_it_has_is_still_a_class(tmp_path: Path) -> None:
    sources = {"main": "class Empty:\n    def never(self): pass\ndef run(): return Empty.__name__\n"}
    assert run(tmp_path, prune(program(sources), ("main",)).texts()) == "Empty"

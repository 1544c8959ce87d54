"""The last lines of the log, which a command fetches."""

import json
from typing import Any

import pytest

from device.field.log_ring import ANSWER_BYTES, LogRing
from device.mqtt.commands import Commands
from tests.device.mqtt.virtual import VirtualBoard, VirtualDevice
from tests.support.model_broker import ModelBroker

WRONG = "expected after, the number of a line, or 0"
RING = {"log_bytes": 1024}


def all_of(ring: LogRing) -> list[str]:
    """The lines as a client fetches them, answer by answer."""
    found: list[str] = []
    answer = ring.lines(0)
    while True:
        found += answer["lines"]
        if not answer["left"]:
            return found
        answer = ring.lines(answer["first"] + len(answer["lines"]) - 1)


def test_the_newest_lines_are_kept_whole_and_the_oldest_go_first() -> None:
    ring = LogRing(1024)
    for number in range(1000):
        ring.add(f"line {number} " + "x" * (number % 97), number * 100)
        kept = all_of(ring)
        first = number - len(kept) + 1
        assert kept == [f"{n // 10}.{n % 10} line {n} " + "x" * (n % 97) for n in range(first, number + 1)]
        assert ring.lines(0)["first"] == first + 1
    assert len(kept) >= 8


def test_answers_are_bounded_and_numbered_without_a_hole() -> None:
    ring = LogRing(8192)
    for number in range(60):
        ring.add(f'"quoted" {number} \\ ' + "ü" * 40, 0)
    numbers: list[int] = []
    answer = ring.lines(0)
    while answer["lines"]:
        assert len(json.dumps(answer)) <= ANSWER_BYTES + 60
        numbers += range(answer["first"], answer["first"] + len(answer["lines"]))
        answer = ring.lines(numbers[-1])
    assert numbers == list(range(1, 61))
    assert ring.lines(60) == {"first": 61, "lines": [], "left": 0}


def test_a_long_line_is_cut_and_a_wrong_number_finds_nothing() -> None:
    ring = LogRing(1024)
    ring.add("ä" * 500, 0)
    assert ring.lines(0)["lines"] == ["0.0 " + "ä" * 160]
    assert ring.lines(10**9)["lines"] == []


@pytest.mark.parametrize(
    ("change", "told", "expected"),
    [
        ({}, {}, {"command": "log", "error": "its configuration has no field.log_bytes"}),
        (
            {"field": RING},
            {"after": -1},
            {"command": "log", "error": WRONG},
        ),
        (
            {"field": RING},
            {"after": "x"},
            {"command": "log", "error": WRONG},
        ),
        (
            {"field": RING},
            {},
            {
                "command": "log",
                "boot": 1,
                "first": 1,
                "lines": ["0.0 garage-1: boot 1, epoch 0000cafe, 0 messages to send, 0 readings made"],
                "left": 0,
            },
        ),
    ],
)
def test_a_command_answers_with_lines(change: dict[str, Any], told: dict[str, object], expected: object) -> None:
    device = VirtualDevice(VirtualBoard(), ModelBroker(), **change)
    assert Commands(device).act("commands", json.dumps({"command": "log", **told}).encode(), 0) == expected

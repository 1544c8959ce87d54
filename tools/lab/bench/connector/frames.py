"""Answers of units on a line that flips bits: how many are taken for something else than was sent."""

import random

from gateway.connectors.modbus.frame import RtuFraming
from gateway.connectors.modbus.request import Read
from gateway.connectors.reading import Unreadable
from tools.lab.sim.modbus_units import SimulatedUnit

UNITS = 32
LOOKED_AT = 100  # of this many frames without a bit error one is read as well
COUNTS = (1, 2, 10, 40, 125)


def wrong_in(frames: int, error_rate: float, seed: int) -> tuple[int, int, int]:
    """Returns how many frames had bit errors, were refused, and were taken with wrong values or from another unit."""
    dice, framing = random.Random(seed), RtuFraming()
    units = [SimulatedUnit(address) for address in range(1, UNITS + 1)]
    asked = [(unit, Read("holding", unit.address, count)) for unit in units for count in COUNTS]
    answers = []
    for unit, request in asked:
        answer = unit.answer(framing.encode(unit.address, request))
        answers.append((unit.address, request, answer, answer[1:-2]))
    others = [answer for _, _, answer, _ in answers]
    corrupt = refused = wrong = 0
    for number in range(frames):
        address, request, answer, right = answers[dice.randrange(len(answers))]
        flips = _flips(dice, 8 * len(answer), error_rate)
        if not flips and number % LOOKED_AT:
            continue
        data = bytearray(answer)
        for place in flips:
            data[place // 8] ^= 1 << place % 8
        corrupt += bool(flips)
        found = None
        looking = framing.answers(address, request)
        try:
            found = looking.feed(bytes(data))
            if found is None:  # the answer of another unit, or to another request, comes behind it
                found = looking.feed(dice.choice(others)[:-1])
        except Unreadable:
            pass
        refused += found is None
        is_exception = found is not None and len(found) == 2
        wrong += found is not None and found != right and not is_exception
    return corrupt, refused, wrong


def _flips(dice: random.Random, bits: int, rate: float) -> list[int]:
    """The places of flipped bits, each with this probability."""
    found: list[int] = []
    place = -1
    while True:
        place += 1 + int(dice.expovariate(rate))
        if place >= bits:
            return found
        found.append(place)

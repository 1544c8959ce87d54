"""The driver and the chip of the how-to page named, at work. Prints, as JSON, what was sampled."""

import json
import sys

import machine


class Clock:
    ms = 0


def blocks(page: str) -> list:
    """The Python blocks of a page."""
    with open(page) as file:
        return [piece.partition("```")[0] for piece in file.read().split("```python\n")[1:]]


def attempt(driver, wait_ms: int) -> object:
    try:
        Clock.ms += driver.start() - wait_ms
        return driver.sample()
    except Exception as error:
        return str(error)


names: dict = {}
for block in blocks(sys.argv[1]):
    exec(block, names)
    if "Driver" in block:
        names["made"] = names["Bh1750"]
chip = names["Bh1750"](lambda: Clock.ms, 1200)
machine.connect_i2c(chip, 0, 0x23)
driver = names["made"]((0, 22, 21), 0x23)
outcomes = [attempt(driver, 0)]
chip.raw = 0xFFFF
outcomes.append(attempt(driver, 0))
print(json.dumps(outcomes))

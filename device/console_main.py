"""The entry point of a board that is told its Wi-Fi over its console (the key `field.improv`). Its main.py is

    import micropython
    micropython.kbd_intr(-1)
    import device.console_main
    device.console_main.main("device.json")

A browser speaks to a board that starts, again and again until it answers, and its packets have the byte of Ctrl-C. So
that byte must not end the program before the console is read.
"""

import json

from micropython import kbd_intr

CTRL_C = 3


def main(config_path: str, on_message=None) -> None:
    """Runs as `device.main.main`. Ctrl-C works as ever if the configuration has no `field.improv`."""
    kbd_intr(-1 if _listens(config_path) else CTRL_C)
    from device.main import main as run

    run(config_path, on_message)


def _listens(config_path: str) -> bool:
    try:
        with open(config_path) as file:
            return json.load(file)["field"]["improv"] is True
    except (OSError, ValueError, KeyError, TypeError):
        return False

"""What a board does after an unexpected failure: it logs it, pauses longer after each failure in a row, and restarts.

A file beside the configuration counts the failures in a row; it survives a reset and a power cut. A start that lasts
for `device.main.STEADY_MS` removes it.
"""

import time

PAUSE_SHORTEST_MS = 5_000  # after the first failure; each further failure doubles the pause
DOUBLINGS_MAX = 7  # so the longest pause is some ten minutes
UNKNOWN = 4  # number of failures to assume if the file cannot be written
CTRL_C = 3
SLICE_MS = 250  # during the pause the watchdog is fed this often
TEXT_CHARACTERS_MAX = 200


def start_anew(board, failures_path: str, text: str, watchdog=None, device=None) -> None:
    """Logs the failure, closes the device (broker, network, flash), and restarts the board after a pause.

    On a machine with an operating system it returns instead, and the process ends.

    Args:
        failures_path: path of the file that counts failures.
        text: what failed.
        watchdog, device: None if they were not made yet.
    """
    let_interrupt(board)
    say = board.say if device is None else device.say
    pause_ms = 0
    text = f"failed: {text[:TEXT_CHARACTERS_MAX]}"
    if board.RESTARTS:
        pause_ms, end = pause(failures_path)
        text += end
    try:
        say(text)
        if device is not None:
            device.close()
    except Exception as error:
        board.say(f"failed again: {repr(error)[:TEXT_CHARACTERS_MAX]}")
    for _ in range(pause_ms // SLICE_MS):
        if watchdog is not None:
            watchdog.feed()
        time.sleep(SLICE_MS / 1000)
    board.restart()


def let_interrupt(board) -> None:
    """Lets Ctrl-C stop a board, also one whose main.py has forbidden it (see `device.console_main`)."""
    if board.RESTARTS:
        try:
            from micropython import kbd_intr

            kbd_intr(CTRL_C)
        except ImportError:  # a board that a test has on CPython
            pass


def pause(failures_path: str) -> tuple:
    """Counts the failure; returns the milliseconds until the next start, and a text that says so, for the log line."""
    failures = _count(failures_path)
    pause_ms = PAUSE_SHORTEST_MS << min(failures - 1, DOUBLINGS_MAX)
    return pause_ms, f"; it starts anew in {pause_ms // 1000} s, after failure {failures} in a row"


def _count(path: str) -> int:
    """Counts this failure in the file; returns how many there were in a row, from 1."""
    try:
        with open(path) as file:
            failures = int(file.read())
    except (OSError, ValueError):  # there is no file, or the power failed while it was written
        failures = 0
    try:
        with open(path, "w") as file:
            file.write(str(failures + 1))
    except OSError:
        return UNKNOWN
    return failures + 1

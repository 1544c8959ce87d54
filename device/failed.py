"""What follows an unexpected failure: a line, a pause that grows from one failure to the next, and a new start.

How often starts have failed in a row stands in a file beside the configuration, which outlives a reset and a power cut.
A start that lasts for `device.main.STEADY_MS` ends the row.
"""

import time

PAUSE_SHORTEST_MS = 5_000  # it doubles each time
DOUBLINGS_MAX = 7  # to some ten minutes
UNKNOWN = 4  # failures where the file cannot be written
SLICE_MS = 250  # from one feeding of the watchdog to the next
TEXT_CHARACTERS_MAX = 200


def start_anew(board, failures_path: str, text: str, watchdog=None, device=None) -> None:
    """Says what failed, leaves the broker and the flash as they are to be found, and restarts the board after a pause.

    Returns where the program runs on a machine, which sees it end.

    Args:
        failures_path: of the file that counts.
        text: what failed.
        watchdog, device: as far as they were made.
    """
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


def pause(failures_path: str) -> tuple:
    """Milliseconds until the next start, and the end of the line that says so; the failure counts."""
    failures = _count(failures_path)
    pause_ms = PAUSE_SHORTEST_MS << min(failures - 1, DOUBLINGS_MAX)
    return pause_ms, f"; it starts anew in {pause_ms // 1000} s, after failure {failures} in a row"


def _count(path: str) -> int:
    """Which failure in a row it is, from 1."""
    try:
        with open(path) as file:
            failures = int(file.read())
    except (OSError, ValueError):  # there is none, or the power went while it was written
        failures = 0
    try:
        with open(path, "w") as file:
            file.write(str(failures + 1))
    except OSError:
        return UNKNOWN
    return failures + 1

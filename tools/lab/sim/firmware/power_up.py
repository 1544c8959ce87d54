"""The start of a simulated board's MicroPython: `power_up.py PLATFORM MACHINE ROOT arch=NUMBER [files=BYTES]
[raw]`.

It mounts the file system that is in the flash over the host's, runs boot.py and main.py from it, and then serves the
console, in the order of MicroPython's ports/esp32/main.c. With `raw` the console was in its raw mode before a soft
reset: then main.py does not run. ROOT is the folder of our packages on the host, and `arch` the
number of the chip in .mpy files. With `files` an RP2's file system has only so much of the storage area.
"""

import sys
import time

import _chip
import _console
import _files
import _platform

PLATFORM, MACHINE, ROOT, ARCHITECTURE = sys.argv[1:5]
OPTIONS = sys.argv[5:]
FILES = [int(option[len("files=") :]) for option in OPTIONS if option.startswith("files=")]
IS_RAW = "raw" in OPTIONS
PROGRAM_BYTES = {"esp32": 32, "rp2": 256}  # that the file system programs at once
CORRUPTED = """\
The file system appears to be corrupted: it is neither erased nor can it be mounted. Write the whole flash anew.
"""


def main() -> None:
    console = _console.Console(_platform.banner(MACHINE))
    _platform.pretend(PLATFORM, MACHINE, int(ARCHITECTURE[len("arch=") :]), console)
    _chip.keep_files_of_the_host()
    device = _files.device(PLATFORM, FILES[0] if FILES else None)
    _platform.load_modules(PLATFORM)
    _platform.wire(_chip.read("wiring.py"), ROOT)
    try:
        if device is not None:
            _files.mount(device, PROGRAM_BYTES[PLATFORM])
        else:
            _files.mount_nothing()
    except OSError:
        while True:  # as MicroPython's inisetup.py
            console.say(CORRUPTED)
            time.sleep(3)
    sys.path[:] = ["", ".frozen", "/lib"]
    is_left = console.run_file("boot.py")
    if not is_left and not IS_RAW:
        is_left = console.run_file("main.py")
    is_raw = IS_RAW if is_left else console.serve(IS_RAW)
    console.say("MPY: soft reboot\n")
    _chip.leave(_chip.RESTARTS_RAW if is_raw else _chip.RESTARTS)


main()

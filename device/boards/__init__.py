"""The differences between boards: `from device.boards import board` imports this board's module.

Each board module has the same names:

NAME                            the board's name
Uptime, unix_ms, set_time       the time
random_u32()                    a random number
free_heap()                     free bytes of the heap, None without a limit
say(text)                       writes a line to the console
open_flash(path, sector_count)  opens the block device for the store
has_speed(baud)                 whether a serial line can run at that speed
open_line(path, baud)           opens a serial line that transfers bytes unchanged
send_at_once(connection)        makes a TCP connection send small packets without delay
reset_cause()                   why the board has started
Network                         joins the device's networks, see `device.boards.wifi`; None: there is none to join
Watchdog                        resets the board unless `feed()` is called in time. `lengthen(most_ms)` gives more time
                                to a call that blocks, until `shorten()`. None: the board has no watchdog
WATCHDOG_MS_MAX                 the longest timeout of the watchdog
restart(), RESTARTS             restarts the board. If RESTARTS is False, `restart` returns, and the process ends
recall()                        returns what `deep_sleep` kept. None: the board cannot sleep
deep_sleep(ms, kept)            sleeps and starts again; it keeps the bytes `kept`. None: the board cannot sleep
"""

import sys

if sys.platform == "esp32":
    from device.boards import esp32 as board
elif sys.platform == "rp2":
    from device.boards import rp2 as board
else:
    from device.boards import unix as board

__all__ = ("board",)

"""What differs between boards: `from device.boards import board` is the module of this one. Each has the same names.

NAME                            what people call it
Uptime, unix_ms, set_time       what time it is
random_u32, free_heap, say      the rest of every day
open_flash(path, sector_count)  the block device for the store
has_speed(baud)                 whether a serial line can run at that speed
open_line(path, baud)           a serial line without any processing of the bytes
send_at_once(connection)        for small packets over TCP
reset_cause()                   why it has started
Network                         networks that the device has to join, see `device.boards.wifi`; None: it has one
Watchdog                        resets what does not `feed()` it in time; where something blocks that cannot feed it,
                                `lengthen(most_ms)` gives it that time, until `shorten()`. None: the board has none
WATCHDOG_MS_MAX                 the longest that it waits
restart(), RESTARTS             starts anew; False: it returns, and what has started the process sees that end
recall(), deep_sleep(ms, kept)  what was kept through a deep sleep; and a sleep, which ends in a start. None: it
                                cannot
"""

import sys

if sys.platform == "esp32":
    from device.boards import esp32 as board
elif sys.platform == "rp2":
    from device.boards import rp2 as board
else:
    from device.boards import unix as board

__all__ = ("board",)

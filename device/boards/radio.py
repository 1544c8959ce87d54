"""What a radio sees; loaded only when a browser asks."""

import network

SCAN_MS = 20_000  # the longest time that the radio may take


def scan(watchdog) -> list:
    """Returns the Wi-Fi networks in reach, the strongest first: name in bytes, strength in dBm, whether it is open.

    It switches the radio on, and leaves it on. Raises OSError.
    """
    watchdog.lengthen(SCAN_MS)
    try:
        station = network.WLAN(network.STA_IF)
        station.active(True)
        found = station.scan()
    finally:
        watchdog.shorten()
    return sorted([(one[0], one[3], one[4] == 0) for one in found], key=lambda one: -one[1])

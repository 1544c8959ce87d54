"""`network` of a simulated board: a Wi-Fi radio. The file `wifi` in the chip's folder describes the access point.

The file has one of these texts. `up`: the access point is there; with names after it, only networks of these names are.
`down`, or no file: there is no access point. `wrong password`: it refuses the password. `broken`: the radio fails.
To join takes 200 ms. After a loss an ESP32 joins again by itself, an RP2 does not.

The file `wifi_fault` has a fault of real radios. `silent`: of a network that is not there the status says for ever that
it is being joined (micropython/micropython#5326). `liar`: the radio says that it has joined it (#3913).
"""

import sys
import time

import _chip

STA_IF, AP_IF = 0, 1
JOIN_MS = 200
LEAVE_MS = 30  # how long `disconnect` goes on: meanwhile the status is the old one, and `connect` is refused
ADDRESSES = ("127.0.0.1", "255.0.0.0", "127.0.0.1", "127.0.0.1")
if sys.platform == "rp2":
    STAT_IDLE, STAT_CONNECTING, STAT_GOT_IP = 0, 1, 3
    STAT_CONNECT_FAIL, STAT_NO_AP_FOUND, STAT_WRONG_PASSWORD = -1, -2, -3
else:
    STAT_IDLE, STAT_CONNECTING, STAT_GOT_IP = 1000, 1001, 1010
    STAT_NO_AP_FOUND, STAT_WRONG_PASSWORD = 201, 202


def hostname(name: str) -> None:
    _chip.write("hostname", name.encode())


def country(code: str) -> None:
    _chip.write("country", code.encode())


def _ticks_ms() -> int:
    return time.time_ns() // 1_000_000


class WLAN:
    """The station. `connect` raises OSError before the station is active, and while it already joins."""

    def __init__(self, interface: int) -> None:
        self._is_active = False
        self._status = STAT_IDLE
        self._since_ms = 0
        self._ssid = ""
        self._left_ms: int = 0  # when the last `disconnect` is over
        self._addresses: object = ADDRESSES

    def active(self, is_active: bool) -> None:
        if _chip.read("wifi") == "broken":
            raise OSError("Wifi Unknown Error 0x0101")
        self._is_active = is_active
        _chip.add("radio", b"+" if is_active else b"-")

    def scan(self) -> list:
        state, *names = _chip.read("wifi").split()
        return [(name.encode(), b"", 1, -60, 3, False) for name in names] if state == "up" else []

    def connect(self, ssid: str, password: str | None = None) -> None:
        self._leave()
        self._ssid = ssid
        if not self._is_active or self._status == STAT_CONNECTING or self._left_ms:
            raise OSError("Wifi Internal State Error")
        _chip.add("joins", f"{ssid} {password}\n".encode())
        self._status, self._since_ms = STAT_CONNECTING, _ticks_ms()

    def disconnect(self) -> None:
        self._left_ms = _ticks_ms() + LEAVE_MS

    def _leave(self) -> None:
        if self._left_ms and _ticks_ms() >= self._left_ms:
            self._status, self._left_ms = STAT_IDLE, 0

    def isconnected(self) -> bool:
        return self.status() == STAT_GOT_IP

    def ifconfig(self, addresses: object = None) -> object:
        if addresses is None:
            return self._addresses
        self._addresses = ADDRESSES if addresses == "dhcp" else addresses
        return None

    def status(self) -> int:
        self._leave()
        if self._left_ms:
            return self._status
        point, *names = (_chip.read("wifi") or "down").split(" ")
        if names and point == "up" and self._ssid not in names:
            point = "down"
        elif names:
            point = " ".join([point] + ([] if point == "up" else names))
        fault = _chip.read("wifi_fault")
        if fault == "liar":
            point = "up"
        elif fault == "silent" and point != "up" and self._status == STAT_CONNECTING:
            return self._status
        if self._status == STAT_GOT_IP and point != "up":
            self._status = STAT_NO_AP_FOUND
        elif self._status != STAT_IDLE and self._status != STAT_GOT_IP:
            self._try(point)
        return self._status

    def _try(self, point: str) -> None:
        if point == "wrong password":
            self._status = STAT_WRONG_PASSWORD
        elif point != "up":
            self._status, self._since_ms = STAT_NO_AP_FOUND, _ticks_ms()
        elif self._status == STAT_CONNECTING and _ticks_ms() - self._since_ms >= JOIN_MS:
            self._status = STAT_GOT_IP
        elif self._status != STAT_CONNECTING and sys.platform == "esp32":
            self._status, self._since_ms = STAT_CONNECTING, _ticks_ms()

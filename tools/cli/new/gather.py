"""All answers for one device, from flags, from a board that is connected, and from a person."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from host.files import read_password
from host.server import Server
from tools.cli.board.console import Console
from tools.cli.device.check_config import Board
from tools.cli.failure import complain
from tools.cli.fleet.table import NAME, NAME_FORM
from tools.cli.new.announced import Gateway, the_only_one
from tools.cli.new.answers import (
    AnswerError,
    Answers,
    read_board,
    read_gateway,
    read_i2c,
    read_interval,
    read_pin,
    read_sensors,
)
from tools.cli.new.fitted import kind_of, sensors_at
from tools.cli.new.questions import Questions

INTERVAL_S = "60"
NTP = "pool.ntp.org"
MDNS = "mdns"
USUAL_I2C = {Board.RP2: "0:5:4", Board.ESP32C3: "0:9:8"}


class Gathering:
    """Collects the answers for one device. The methods raise AnswerError, HostError, BoardError and Refused.

    Args:
        given: what flags and columns say, by the names of columns.
        open_wifi: whether the Wi-Fi has no password.
        look: looks for gateways.
        folder: where the paths of password files begin.
    """

    def __init__(
        self,
        questions: Questions,
        given: Mapping[str, str],
        open_wifi: bool,
        look: Callable[[], list[Gateway]],
        folder: Path = Path(),
    ) -> None:
        self._questions, self._given, self._open_wifi, self._look = questions, given, open_wifi, look
        self._folder = folder

    def answers(self, console: Console | None = None, i2c: Sequence[str] = (), wires: Sequence[str] = ()) -> Answers:
        """Asks for what is missing.

        Args:
            console: of a board that is connected; None for none.
            i2c, wires: where to look for sensors at it, as the flags have it.
        """
        ask, given = self._questions.text, self._given
        name = ask("--name", "name of the device", _read_name, given=given.get("name"))
        board = kind_of(console) if console is not None and "board" not in given else None
        board = board or ask("--board", f"board ({', '.join(Board)})", read_board, given=given.get("board"))
        wifi = self._wifi()
        wifi_password = self._wifi_password() if wifi else None
        gateway = self._gateway()
        user, password = self._login(gateway)
        interval_s = ask(
            "--interval-s", "seconds between samples", read_interval, INTERVAL_S, given=given.get("interval_s")
        )
        return Answers(
            name=name,
            board=board,
            wifi=wifi,
            wifi_password=wifi_password,
            gateway=gateway,
            user=user,
            password=password,
            topic=given.get("topic", f"telemetry/{name}"),
            status=given.get("status", f"status/{name}"),
            commands=given.get("commands", ""),
            interval_s=interval_s,
            flash=given.get("flash", ""),
            ntp=given.get("ntp", NTP),
            sensors=self._sensors(board, console, i2c, wires),
        )

    def _wifi(self) -> str:
        return self._questions.text(
            "--wifi", "name of the Wi-Fi, - for none", _read_wifi, given=self._given.get("wifi")
        )

    def _wifi_password(self) -> str | None:
        if self._open_wifi:
            return None
        if file := self._given.get("wifi_password_file"):
            return _text(read_password(self._folder / file), file)
        return self._questions.secret("--wifi-password-file or --open-wifi", "password of the Wi-Fi") or None

    def _gateway(self) -> Server:
        given = self._given.get("gateway")
        if given == MDNS:
            found_one = the_only_one(self._look())
            complain("device new", f"--gateway mdns: {found_one}")
            return found_one.server
        if given is None and self._questions.has_person and (found := self._look()):
            number = self._questions.choice([str(one) for one in found], "gateway, or 0 to type another")
            if number is not None:
                return found[number].server
        return self._questions.text(
            "--gateway", "gateway, HOST or mqtt://HOST:PORT or mqtts://HOST:PORT", read_gateway, given=given
        )

    def _login(self, gateway: Server) -> tuple[str | None, str | None]:
        given = self._given
        if gateway.is_encrypted:
            if "user" in given or "password_file" in given:
                raise AnswerError("user: a gateway with TLS gets the login that `holdfast flash --site` adds")
            return None, None
        user = self._questions.text("--user", "user at the gateway", str, default="", given=given.get("user"))
        if not user:
            return None, None
        if file := given.get("password_file"):
            return user, _text(read_password(self._folder / file), file)
        return user, self._questions.secret("--password-file", f"password of {user}")

    def _sensors(
        self, board: Board, console: Console | None, i2c: Sequence[str], wires: Sequence[str]
    ) -> list[dict[str, Any]]:
        questions = self._questions
        sensors = read_sensors(self._given.get("sensors", ""))
        if console is not None:
            if not i2c and not wires and not sensors and questions.has_person:
                usual = USUAL_I2C.get(board, "0:22:21")
                i2c = _some(questions.text("--i2c", f"I2C as BUS:SCL:SDA, as {usual}, - for none", _read_i2c, "-"))
                wires = _some(questions.text("--one-wire", "pin of a 1-Wire bus, - for none", _read_wire, "-"))
            found = sensors_at(console, [read_i2c(one) for one in i2c], [read_pin(one) for one in wires])
            sensors += [one for one in found if questions.agrees(f"{_shown(one)}: use it")]
        if sensors:
            return sensors
        return questions.text("--sensor", "sensor, as adc:pin=34,full_scale_mv=3300", _read_some_sensors)


def _read_name(text: str) -> str:
    if not NAME.fullmatch(text):
        raise AnswerError(f"name is {text!r}, expected {NAME_FORM}")
    return text


def _read_wifi(text: str) -> str:
    return "" if text == "-" else text


def _read_i2c(text: str) -> str:
    if text != "-":
        read_i2c(text)
    return text


def _read_wire(text: str) -> str:
    if text != "-":
        read_pin(text)
    return text


def _some(text: str) -> list[str]:
    return [] if text == "-" else [text]


def _read_some_sensors(text: str) -> list[dict[str, Any]]:
    if not (found := read_sensors(text)):
        raise AnswerError("sensor: expected one at least")
    return found


def _text(password: bytes, file: str) -> str:
    try:
        return password.decode()
    except UnicodeDecodeError as error:
        raise AnswerError(f"{file}: expected a password in UTF-8") from error


def _shown(sensor: Mapping[str, Any]) -> str:
    return f"{sensor['kind']} at " + ", ".join(f"{key} {one}" for key, one in sensor.items() if key != "kind")

"""The firmware as `holdfast device build` makes it."""

from pathlib import Path

import pytest

from device.config import load
from tests.device.boards.powered import Board as Powered
from tests.device.firmware import Firmware, published, seq, tcp
from tests.device.mqtt.test_login import SCRAM, gateway
from tests.support.scripted_broker import scripted_broker
from tools.cli.device.build import Board, build_board, compile_for_heap, compile_program
from tools.cli.paths import source_root
from tools.lab.micropython import MicroPython

FORMS = {"in place": compile_program, "in the heap": compile_for_heap}


@pytest.fixture(scope="module")
def unix_program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the whole program for this machine, in one of the forms."""
    folder = tmp_path_factory.mktemp("program")
    write(FORMS[request.param](Board.UNIX), folder)
    return folder


@pytest.fixture
def board_program(platform: str, form: str, tmp_path: Path) -> Path:
    """The folder of the whole program for the board; to compile it is no part of the test, whose time is limited."""
    files = FORMS[form](Board(platform))
    simulated_uart = "device/boards/terminal.py"
    files[simulated_uart] = (source_root() / simulated_uart).read_bytes()
    write(files, tmp_path / "program")
    return tmp_path / "program"


@pytest.fixture(scope="module")
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a build, rewritten or as written."""
    folder = tmp_path_factory.mktemp("built")
    build_board(Board.UNIX, folder, as_written=request.param)
    return folder


@pytest.mark.parametrize("built", [True, False], indirect=True)
async def test_built_firmware_delivers_readings(built: Path, micropython: MicroPython, tmp_path: Path) -> None:
    async with scripted_broker() as broker:
        device = Firmware(micropython, tmp_path, tcp(broker.port))
        device.environment["MICROPYPATH"] = f"{built / 'lib'}:.frozen"
        await device.start()
        await published(broker, 0, 10)
        await device.end()


@pytest.mark.parametrize("payload", ["json", "cbor"])
@pytest.mark.parametrize("unix_program", FORMS, indirect=True)
async def test_whole_program_delivers_readings_and_takes_commands(
    payload: str, unix_program: Path, micropython: MicroPython, tmp_path: Path
) -> None:
    change = {
        "qos": 2,
        "commands": "to/garage",
        "status": "status/garage",
        "payload": payload,
        "health_interval_ms": 1000,
    }
    async with scripted_broker() as broker:
        device = Firmware(micropython, tmp_path, tcp(broker.port), **change)
        device.environment["MICROPYPATH"] = f"{unix_program}:.frozen"
        await device.start()
        await published(broker, 0, 10)
        await device.end()


@pytest.mark.parametrize("form", FORMS)
async def test_program_for_one_configuration_delivers_its_readings(
    form: str, micropython: MicroPython, tmp_path: Path
) -> None:
    async with scripted_broker() as broker:
        device = Firmware(micropython, tmp_path, tcp(broker.port), payload="cbor", health_interval_ms=1000)
        write(FORMS[form](Board.UNIX, load(str(device.config_path))), tmp_path / "program")
        device.environment["MICROPYPATH"] = f"{tmp_path / 'program'}:.frozen"
        await device.start()
        await published(broker, 0, 10)
        await device.end()


@pytest.mark.parametrize("unix_program", FORMS, indirect=True)
async def test_parts_that_few_devices_load_work_in_the_whole_program(
    unix_program: Path, micropython: MicroPython, tmp_path: Path
) -> None:
    """A login by SCRAM, a second broker, and a message that is set aside."""
    async with gateway(tmp_path) as port:
        device = Firmware(micropython, tmp_path, [tcp(9), {**tcp(port), **SCRAM}], readings_limit=60)  # type: ignore[arg-type]
        device.environment["MICROPYPATH"] = f"{unix_program}:.frozen"
        await device.start()
        await device.says("hashes make the keys of the password")
        await device.says("connected to")
        await device.end()
    async with scripted_broker(puback=lambda publish: 0x87 if seq(publish) == 70 else 0) as broker:
        device.change(port=tcp(broker.port), readings_limit=0)
        await device.start()
        await device.says("is set aside: not authorized (0x87)")
        await device.end()


# The same steps make both programs, and each takes seconds to make; `test_power.py` runs the parts of both boards.
@pytest.mark.parametrize("platform", ["esp32", pytest.param("rp2", marks=pytest.mark.long)])
@pytest.mark.parametrize("form", FORMS)
async def test_whole_program_of_a_board_delivers_readings(
    platform: str, form: str, board_program: Path, micropython: MicroPython, tmp_path: Path
) -> None:
    program = f"import sys; sys.path.insert(0, {str(board_program)!r}); import device.main; "
    async with scripted_broker() as broker:
        network = {"ssid": "attic", "password": "under the roof"}
        board = Powered(platform, micropython, tmp_path, tcp(broker.port), network=network, interval_ms=50)
        board.argv[-1] = program + f"device.main.main({str(board.config_path)!r})"
        board.wifi("up")
        await board.start()
        await board.says("connected")
        await published(broker, 0, 10)
        await board.end()


def write(files: dict[str, bytes], folder: Path) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)

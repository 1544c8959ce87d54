"""The page about programs of one's own: its program runs as it stands there, from what the build makes."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

from tests.device.firmware import TOPIC, Firmware, eventually, tcp
from tests.support.subscriber import subscriber
from tools.cli.device.build import Board, build_board, compile_program
from tools.cli.paths import source_root
from tools.lab.micropython import MicroPython
from tools.lab.testing.mosquitto import mosquitto

ANSWERS = f"{TOPIC}/answer"
PUBLISHES_TOO_MUCH = """
import holdfast
holdfast.start({config!r})
try:
    holdfast.publish("doors/front", bytes(8192))
except holdfast.MessageTooLarge as error:
    full, failed = holdfast.StoreFull, holdfast.DeviceFailed
    print("too large", issubclass(full, holdfast.StoreError), issubclass(failed, holdfast.StoreError))
"""


HELD = """
import gc, device.main
def take(load):
    gc.collect()
    before = gc.mem_alloc()
    config = load({config!r})
    gc.collect()
    print(gc.mem_alloc() - before)
    return config
def load_and_keep(path):
    global config
    from device import config
    return config.load(path)
take(device.main.load)
take(load_and_keep)
"""
FORMS = ("modules", "image", "as written")


@pytest.fixture(scope="module", params=["modules"])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a board's `/lib`, in one of the forms; to build it is no part of a test, whose time is limited."""
    folder = tmp_path_factory.mktemp("board")
    form = request.param
    if form == "image":
        for path, content in compile_program(Board.UNIX).items():
            (folder / "lib" / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / "lib" / path).write_bytes(content)
    else:
        build_board(Board.UNIX, folder, as_written=form == "as written")
    return folder / "lib"


def told_by(micropython: MicroPython, library: Path, program: str, folder: Path) -> str:
    """What a program on a real MicroPython prints that has the firmware's modules from this folder."""
    return subprocess.run(
        [*micropython.argv, "-c", program],
        env={"MICROPYPATH": f"{library}:.frozen"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout


async def test_program_of_the_page_publishes_once_flash_has_it(
    library: Path, micropython: MicroPython, tmp_path: Path
) -> None:
    page = (source_root() / "docs/how-to/library.md").read_text()
    _, program = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    with mosquitto(tmp_path) as port, subscriber(port, "doors/#", 2) as received, subscriber(port, ANSWERS) as answers:
        device = Firmware(micropython, tmp_path, tcp(port), sensors=[], commands="door", journal=None)
        device.environment["MICROPYPATH"] = f"{library}:.frozen"
        device.argv[-1] = program.replace("device.json", str(device.config_path))
        await device.start()
        said = await device.says("is in flash")
        assert re.fullmatch(r"message \d+ is in flash", said)
        await device.says("connected")
        await eventually(lambda: received.qsize())
        message = received.get_nowait()
        assert (message.topic, message.payload, message.qos) == ("doors/front", b"closed", 2)
        command = ["mosquitto_pub", "-V", "5", "-p", str(port), "-q", "2", "-t", "door", "-m", "open"]
        subprocess.run(command, check=True, timeout=20)
        await device.says("door: b'open'")
        await eventually(lambda: received.qsize() and answers.qsize())
        assert received.get_nowait().payload == b"opening"
        assert answers.get_nowait().payload == b'{"door": "opens"}'
        await device.end()


async def test_program_of_ones_own_keeps_its_heap_as_dense_as_the_firmware(
    micropython: MicroPython, tmp_path: Path
) -> None:
    device = Firmware(micropython, tmp_path, tcp(9), sensors=[], journal=None)
    start = f"import gc, device.library as holdfast; holdfast.start({str(device.config_path)!r})"
    device.argv[-1] = f"{start}; print('collects each', gc.threshold())"
    await device.start()
    assert await device.says("collects each") == "collects each 4096"


def test_rewritten_modules_have_every_name_that_an_editor_knows(
    library: Path, micropython: MicroPython, tmp_path: Path
) -> None:
    types = ast.parse((source_root() / "tools/cli/device/holdfast.pyi").read_text())
    names = [node.name for node in types.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    imports = [node for node in types.body if isinstance(node, ast.ImportFrom)]
    names += [alias.asname for node in imports for alias in node.names if alias.asname]
    program = f"import holdfast; print([name for name in {names} if not hasattr(holdfast, name)])"
    told = told_by(micropython, library, program, tmp_path)
    assert told == "[]\n" and len(names) == 10


def test_modules_that_read_the_configuration_leave_the_heap(
    library: Path, micropython: MicroPython, tmp_path: Path
) -> None:
    config = Firmware(micropython, tmp_path, tcp(9), sensors=[], journal=None).config_path
    told = told_by(micropython, library, HELD.format(config=str(config)), tmp_path)
    held, with_modules = [int(word) for word in told.split()]
    assert held < 0.5 * with_modules


@pytest.mark.parametrize("library", FORMS, indirect=True)
async def test_program_of_ones_own_can_name_the_errors_of_publish(
    library: Path, micropython: MicroPython, tmp_path: Path
) -> None:
    device = Firmware(micropython, tmp_path, tcp(9), sensors=[], journal=None)
    device.environment["MICROPYPATH"] = f"{library}:.frozen"
    device.argv[-1] = PUBLISHES_TOO_MUCH.format(config=str(device.config_path))
    await device.start()
    assert (await device.says("too large")).endswith(" True True")

"""The page about programs of one's own: its program runs as it stands there, from what the build makes."""

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


async def test_program_of_the_page_publishes_once_flash_has_it(micropython: MicroPython, tmp_path: Path) -> None:
    page = (source_root() / "docs/how-to/library.md").read_text()
    _, program = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    build_board(Board.UNIX, tmp_path / "lib")
    with mosquitto(tmp_path) as port, subscriber(port, "doors/#", 2) as received, subscriber(port, ANSWERS) as answers:
        device = Firmware(micropython, tmp_path, tcp(port), sensors=[], commands="door", journal=None)
        device.environment["MICROPYPATH"] = f"{tmp_path / 'lib'}:.frozen"
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


@pytest.mark.parametrize("form", ["modules", "image"])
async def test_program_of_ones_own_can_name_the_errors_of_publish(
    form: str, micropython: MicroPython, tmp_path: Path
) -> None:
    if form == "modules":
        build_board(Board.UNIX, tmp_path / "lib")
    else:
        for path, content in compile_program(Board.UNIX).items():
            (tmp_path / "lib" / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "lib" / path).write_bytes(content)
    device = Firmware(micropython, tmp_path, tcp(9), sensors=[], journal=None)
    device.environment["MICROPYPATH"] = f"{tmp_path / 'lib'}:.frozen"
    device.argv[-1] = PUBLISHES_TOO_MUCH.format(config=str(device.config_path))
    await device.start()
    assert (await device.says("too large")).endswith(" True True")

"""``holdfast bench device``: what the firmware takes of a board, and what it does with it."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from tools.bench.device_figures import Bench
from tools.demo.process import ProcessFailed
from tools.failure import failing_on
from tools.micropython import MicroPython, MicroPythonUnavailable, find, find_32_bit
from tools.sim.certificates import Authority
from tools.sim.mosquitto import Mosquitto, MosquittoUnavailable, free_port

FAILURES = (MicroPythonUnavailable, MosquittoUnavailable, ProcessFailed, subprocess.CalledProcessError, OSError)


def device(
    umqtt: Annotated[
        Path | None, typer.Option(help="A folder with micropython-lib's umqtt, to measure the same beside it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
) -> None:
    """Measure the compiled firmware on a real MicroPython: least heap, messages/s, bytes on the wire, time to start."""
    with failing_on(*FAILURES, command="bench device"), tempfile.TemporaryDirectory() as folder:
        report = _measure(Path(folder), umqtt)
    if as_json:
        print(json.dumps(report))
    else:
        _print(report)


def _measure(folder: Path, umqtt: Path | None) -> dict[str, Any]:
    vm = find()
    authority = Authority(folder, "ca")
    certificate, key = authority.server()
    tls_port = free_port()
    files = f"cafile {authority.path}\ncertfile {certificate}\nkeyfile {key}"
    broker = Mosquitto(folder, f"listener {tls_port} 127.0.0.1\n{files}")
    broker.start()
    try:
        report = Bench(folder, broker.port, tls_port, vm, _vm_32_bit(), umqtt).measure()
    finally:
        broker.stop()
    return {"vm": f"MicroPython {vm.version}", **report}


def _vm_32_bit() -> MicroPython | None:
    try:
        return find_32_bit()
    except MicroPythonUnavailable as error:
        print(f"no heap of 32 bits is measured: {error}", file=sys.stderr)
        return None


def _print(report: dict[str, Any]) -> None:
    for name, value in report.items():
        if isinstance(value, dict):
            for part, figure in value.items():
                print(f"{name.replace('_', ' ')}, {part.replace('_', ' ')}: {figure}")
        else:
            print(f"{name.replace('_', ' ')}: {value}")

"""``holdfast lab bench device``: the heap that the firmware needs, and its speed."""

import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from tools.cli.failure import failing_on
from tools.lab.bench.device.figures import BAR_KIB, FROM_MPY_BAR_KIB, FROZEN_BAR_KIB, FULL, Bench
from tools.lab.bench.device.frozen import FrozenUnavailable
from tools.lab.figure import Figure
from tools.lab.micropython import MicroPython, MicroPythonUnavailable, find, find_32_bit
from tools.lab.result import JSON_OPTION, end_bench, quick_option
from tools.lab.testing.certificates import Authority
from tools.lab.testing.mosquitto import Mosquitto, MosquittoUnavailable
from tools.lab.testing.ports import free_port
from tools.lab.testing.process import ProcessFailed

FAILURES = (
    FrozenUnavailable,
    MicroPythonUnavailable,
    MosquittoUnavailable,
    ProcessFailed,
    subprocess.CalledProcessError,
    OSError,
)


def device(
    source: Annotated[
        Path | None,
        typer.Option("--micropython", help="MicroPython's sources: the firmware is then measured frozen as well."),
    ] = None,
    quick: Annotated[bool, quick_option()] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Measure the compiled firmware on a real MicroPython: the least heap, messages/s, bytes sent, time to start.

    Takes some twenty minutes. Ends with 1 if a goal is missed. --quick measures QoS 1 only, and one heap.
    """
    started = time.monotonic()
    with failing_on(*FAILURES, command="lab bench device"), tempfile.TemporaryDirectory() as folder:
        vm = find()
        report = _measure(Path(folder), vm, source, quick)
    about = {"vm": f"MicroPython {vm.version}"}
    end_bench("device", list(_figures(report)), time.monotonic() - started, as_json, about=about)


def _measure(folder: Path, vm: MicroPython, source: Path | None, quick: bool) -> dict[str, Any]:
    authority = Authority(folder, "ca")
    certificate, key = authority.server()
    # A MicroPython that is built from its sources reads no PEM: its configuration of mbedTLS leaves that out.
    (folder / "ca.der").write_bytes(ssl.PEM_cert_to_DER_cert(authority.path.read_text()))
    tls_port = free_port()
    files = f"cafile {authority.path}\ncertfile {certificate}\nkeyfile {key}"
    broker = Mosquitto(folder, f"listener {tls_port} 127.0.0.1\n{files}")
    broker.start()
    try:
        bench = Bench(folder, broker.port, tls_port, vm, _vm_32_bit(), source)
        return bench.measure_quickly() if quick else bench.measure()
    finally:
        broker.stop()


def _vm_32_bit() -> MicroPython | None:
    try:
        return find_32_bit()
    except MicroPythonUnavailable as error:
        print(f"no heap of 32 bits is measured: {error}", file=sys.stderr)
        return None


FORMS = {"in_place": "in place, from a ROMFS", "frozen": "frozen", "from_mpy": "from .mpy files"}
GOALS_KIB = {  # with words of 32 bits
    "in_place": {"qos 1": BAR_KIB, "qos 2": BAR_KIB, "qos 2, tls": 2 * BAR_KIB, f"qos 2{FULL}": BAR_KIB},
    "frozen": {f"qos 2{FULL}": FROZEN_BAR_KIB, f"qos 2, tls, commands{FULL}": FROZEN_BAR_KIB},
    "from_mpy": {f"qos 2{FULL}": FROM_MPY_BAR_KIB},
}
TRAFFIC = {
    "reset_to_first_publish_ms": ("reset to first PUBLISH", "ms"),
    "bytes_per_reading_up": ("from the device for a reading", "bytes"),
    "bytes_per_reading_down": ("to the device for a reading", "bytes"),
    "bytes_per_message_up": ("from the device for a message", "bytes"),
}


def _figures(report: dict[str, Any]) -> Iterator[Figure]:
    bits = report["bits"]
    for form, heaps in report["least_heap_kib"].items():
        for name, kib in heaps.items():
            goal = GOALS_KIB.get(form, {}).get(name) if bits == 32 else None
            yield Figure(
                f"least heap {FORMS[form]}, words of {bits} bits, {name}", "KiB", kib, None, goal, at_most=True
            )
    for qos in (1, 2):
        if traffic := report.get(f"qos {qos}"):
            yield Figure(f"QoS {qos}: a backlog", "messages/s", traffic["messages_per_s"])
            for key, (what, unit) in TRAFFIC.items():
                yield Figure(f"QoS {qos}: {what}", unit, traffic[key])
    yield Figure("the VM alone, from start to end", "ms", report["bare_start_ms"])

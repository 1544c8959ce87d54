"""MicroPython's unix port with the firmware frozen into it, built for words of 32 bits from sources at hand."""

import subprocess
from pathlib import Path

from tools.lab.micropython import MicroPython

BUILD_TIMEOUT_S = 900
LEFT_OUT = ("MICROPY_PY_BTREE=0", "MICROPY_PY_FFI=0")  # these parts need libraries of 32 bits that few machines have
SHOWN_LINES = 5


class FrozenUnavailable(Exception):
    """MicroPython cannot be built from these sources; the text says why."""


def build_frozen(source: Path, manifest: Path, folder: Path) -> MicroPython:
    """Builds MicroPython in `folder` with frozen asyncio and the modules of `manifest`, which takes some minutes. TLS
    needs the submodule `lib/mbedtls` of the source tree. Raises FrozenUnavailable."""
    whole = folder / "manifest.py"
    whole.write_text(f'include("$(MPY_DIR)/extmod/asyncio")\ninclude("{manifest.resolve()}")\n')
    _make(source / "mpy-cross")
    build = folder / "build"
    # A half-precision float is converted by SSE2 instructions, which 32-bit code does not use by itself.
    flags = "CFLAGS_EXTRA=-DMICROPY_FLOAT_USE_NATIVE_FLT16=0"
    options = [f"BUILD={build}", f"FROZEN_MANIFEST={whole}", "MICROPY_FORCE_32BIT=1", *LEFT_OUT, flags]
    _make(source / "ports/unix", *options, f"MICROPY_PY_SSL={int(has_tls(source))}")
    return MicroPython([str(build / "micropython")], "built from sources")


def has_tls(source: Path) -> bool:
    """Returns whether the source tree has the sources of TLS."""
    return (source / "lib/mbedtls/library").is_dir()


def _make(folder: Path, *options: str) -> None:
    command = ["make", "-C", str(folder), "-j2", *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FrozenUnavailable(f"{' '.join(command)}: {error}") from error
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-SHOWN_LINES:])
        raise FrozenUnavailable(f"{' '.join(command)} failed (does gcc -m32 work here?):\n{said}")

"""What a simulated board's MicroPython says of itself: `sys` and `micropython` with what differs from the unix port."""

import sys

MPY_VERSION = 0x3FF  # the bits of `sys.implementation._mpy` below the architecture
MODULES = {
    "esp32": ("machine", "network", "esp32", "esp", "onewire", "ds18x20", "dht"),
    "rp2": ("machine", "network", "rp2", "onewire", "ds18x20", "dht"),
}


def banner(machine: str) -> str:
    return sys.version.split("; ")[-1] + "; " + machine + '\nType "help()" for more information.\n'


class _Implementation:
    name = "micropython"
    version = sys.implementation.version
    _mpy = sys.implementation._mpy
    _build = "GENERIC"
    _machine = ""


class _Sys:
    """`sys` of the board."""


class _MicroPython:
    """`micropython` of the board."""


def pretend(platform: str, machine: str, architecture: int, console) -> None:
    """Lets `import sys` and `import micropython` return the board's."""
    import micropython

    _Implementation._machine = machine
    _Implementation._mpy = sys.implementation._mpy & MPY_VERSION | architecture << 10
    changes = {"implementation": _Implementation, "platform": platform, "argv": [], "stdout": console.output}
    _replace(sys, _Sys, changes)
    _replace(micropython, _MicroPython, {"kbd_intr": console.set_interrupt})


def _replace(module, stand_in, changes: dict) -> None:
    """Lets `stand_in` be imported instead of a built-in module: the same but for the changes."""
    for name in dir(module):
        if not name.startswith("__"):
            setattr(stand_in, name, changes.get(name, getattr(module, name)))
    sys.modules[module.__name__] = stand_in


def load_modules(platform: str) -> None:
    """Loads the simulated modules while the host's files can still be read."""
    for name in MODULES[platform]:
        __import__(name)


def wire(program: str, root: str) -> None:
    """Runs the program that wires chips to the board. The board's own programs do not see what it has loaded."""
    if not program:
        return
    before = set(sys.modules)
    sys.path.insert(0, root)
    exec(program, {})
    sys.path.pop(0)
    for name in list(sys.modules):
        if name not in before:
            sys.modules.pop(name)

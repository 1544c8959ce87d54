"""Which form of the firmware fits a board's heap, and in words what else would."""

from enum import StrEnum

from device.config import Config
from tools.cli.board.console import Answer
from tools.cli.board.errors import Refused

KIB = 1024


class Form(StrEnum):
    """The forms that `holdfast device build` makes."""

    LOADED = "as modules that a board loads"
    IN_PLACE = "executed in place from a ROMFS"
    FROZEN = "frozen into a MicroPython that you build"


# KiB of heap with a full store, by whether the device has TLS, and commands: `holdfast lab bench device`
# (docs/reference/commands/bench.md). A test compares them with the page.
NEEDED_KIB = {
    Form.LOADED: {(False, False): 113, (False, True): 124, (True, False): 119, (True, True): 128},
    Form.IN_PLACE: {(False, False): 60, (False, True): 64, (True, False): 64, (True, True): 68},
    Form.FROZEN: {(False, False): 52, (False, True): 57, (True, False): 56, (True, True): 60},
}
TLS_KIB = 54  # mbedTLS during a handshake; outside of MicroPython's heap on an ESP32
TLS_IN_HEAP = ("rp2",)  # platforms where it is within


def needed_kib(form: Form, platform: str, has_tls: bool, has_commands: bool) -> int:
    """Returns the KiB of heap that the firmware needs with a full store.

    Args:
        platform: what `sys.platform` is on the board.
    """
    return NEEDED_KIB[form][has_tls, has_commands] + (TLS_KIB if has_tls and platform in TLS_IN_HEAP else 0)


def check_fits(answer: Answer, keys: Config) -> str:
    """Returns in words how the firmware fits as modules that the board loads, which `holdfast flash` writes.

    Raises:
        Refused: the board's heap is too small; the text says what would fit.
    """
    has_tls, has_commands = any(port.kind == "tls" for port in keys.ports), keys.commands is not None
    has_kib = answer.heap // KIB
    needed = needed_kib(Form.LOADED, answer.platform, has_tls, has_commands)
    what = f"the firmware{_named(has_tls, has_commands)}, {Form.LOADED}, needs {needed} KiB of heap"
    if needed <= has_kib:
        return f"{what}, and the board has {has_kib}"
    forms = [_other_form(form, answer, has_tls, has_commands) for form in (Form.IN_PLACE, Form.FROZEN)]
    lighter = [
        f"{_named(tls, commands).strip() + ' alone' if tls or commands else 'without TLS and commands'} it needs {kib}"
        for tls, commands in ((False, True), (True, False), (False, False))
        if (tls, commands) != (has_tls, has_commands) and tls <= has_tls and commands <= has_commands
        if (kib := needed_kib(Form.LOADED, answer.platform, tls, commands)) <= has_kib
    ]
    raise Refused(
        f"{answer.machine}: {what}, and the board has {has_kib}. "
        + ". ".join(text[0].upper() + text[1:] for text in [*filter(None, forms), *lighter])
        + ". A board with PSRAM has enough. MicroPython is on the board, and the firmware was not written"
    )


def _other_form(form: Form, answer: Answer, has_tls: bool, has_commands: bool) -> str:
    kib = needed_kib(form, answer.platform, has_tls, has_commands)
    if form is Form.IN_PLACE and not answer.has_romfs:
        return ""
    end = "" if kib * KIB <= answer.heap else ", which is too much as well"
    return f"{form} it needs {kib}{end} (see `holdfast device build`)"


def _named(has_tls: bool, has_commands: bool) -> str:
    words = [word for word, has in (("TLS", has_tls), ("commands", has_commands)) if has]
    return f" with {' and '.join(words)}" if words else ""

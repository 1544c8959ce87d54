"""The access rules of a site's devices: a block of lines for each device, in a file that an operator may add to."""

import contextlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.auth.rules import parse_rules
from tools.cli.site.errors import SiteError

BEGINS, ENDS = "# holdfast site, begin: ", "# holdfast site, end: "
HEAD = """\
# Access rules of this site's gateways: docs/how-to/accounts.md. The first rule that matches decides.
# `holdfast site` adds a block for each device, and takes it away. Your own rules may stand before or behind the blocks;
# a user of yours also needs a rule with `connect`.
"""


@dataclass(frozen=True)
class Rights:
    """The topic filters that a device may publish to and receive; ``%u`` stands for its name."""

    publish: Sequence[str] = ("telemetry/%u/#", "status/%u")
    subscribe: Sequence[str] = ("commands/%u/#", "telemetry/%u", "telemetry/%u/session/+")

    @staticmethod
    def of_device(topic: str, status: str = "", commands: str = "") -> "Rights":
        """Returns what a device needs by the keys ``topic``, ``status`` and ``commands`` of its configuration."""
        publish = [f"{topic}/#", *([status] if status else [])]
        return Rights(publish, [topic, f"{topic}/session/+", *([commands] if commands else [])])


def watcher_of(name: str) -> str:
    """Returns the client identifier that waits for a device's first reading with the device's login; no device can
    have it as its name.
    """
    return f"{name}:flash"


def block_of(name: str, rights: Rights) -> list[str]:
    """Returns the lines for one device: it may use its own name as client identifier and no other.

    `holdfast flash` connects beside it, to see its first reading.
    """
    rules = [f"allow {name} connect {one}" for one in (name, watcher_of(name))] + [f"deny {name} connect *"]
    for action, filters in (("publish", rights.publish), ("subscribe", rights.subscribe)):
        rules += [f"allow {name} {action} {shlex.quote(one.replace('%u', name))}" for one in filters]
    return [BEGINS + name, *rules, ENDS + name]


def names_in(text: str) -> list[str]:
    """Returns the devices with a block."""
    return [line.removeprefix(BEGINS) for line in _lines(text) if line.startswith(BEGINS)]


def with_blocks(text: str, blocks: Sequence[list[str]], path: Path) -> str:
    """Returns a file's text with blocks at its end, without earlier ones of the same names.

    Raises ConfigError: a line is no rule, for example because a topic filter is not valid.
    """
    for block in blocks:
        text = without_block(text, block[0].removeprefix(BEGINS), path)
    end = "" if not text or text.endswith("\n") else "\n"
    text += end + "".join(f"{line}\n" for block in blocks for line in block)
    parse_rules(text, path)
    return text


def without_block(text: str, name: str, path: Path) -> str:
    """Returns a file's text without a device's block. Raises SiteError: the block's last line is gone."""
    whole, lines = text.split("\n"), _lines(text)
    while BEGINS + name in lines:
        first = lines.index(BEGINS + name)
        if ENDS + name not in lines[first:]:
            raise SiteError(f"{path}:{first + 1}: expected a line '{ENDS + name}' behind this one")
        block = slice(first, lines.index(ENDS + name, first) + 1)
        del whole[block], lines[block]
    text = "\n".join(whole)
    return text if not text or text.endswith("\n") else text + "\n"


def own_rules(text: str, name: str) -> list[tuple[int, str]]:
    """Returns the lines outside of all blocks that have a rule for a name, with their numbers: an owner wrote them."""
    found, is_block = [], False
    for number, line in enumerate(_lines(text), 1):
        if line.startswith((BEGINS, ENDS)):
            is_block = line.startswith(BEGINS)
        elif not is_block and name in line and not line.lstrip().startswith("#"):
            with contextlib.suppress(ValueError):  # a line that is no rule allows nothing
                if shlex.split(line)[1:2] == [name]:
                    found.append((number, line.strip()))
    return found


def _lines(text: str) -> list[str]:
    """Returns the lines as a gateway takes them apart. A line of an operator may have other line breaks in it."""
    return [line.removesuffix("\r") for line in text.split("\n")]

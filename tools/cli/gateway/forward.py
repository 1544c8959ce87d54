"""``holdfast gateway forward``: adds a route to the next broker to a gateway's configuration."""

import getpass
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from gateway.config.errors import read_text
from host.errors import ConfigError
from host.files import locked, replace_file, write_new
from tools.cli.failure import fail, failing_on
from tools.cli.gateway.arguments import ConfigFile, chosen
from tools.cli.gateway.config import read_configuration
from tools.cli.gateway.unit import NAME

PASSWORD_MODE = 0o640  # as the package has the files of /etc/holdfast: of root, and the service's group reads them
RELOAD = ("systemctl", "reload", NAME)


def forward(
    broker: Annotated[str, typer.Argument(metavar="URL", help="The next broker, such as mqtts://broker.example.org.")],
    config: ConfigFile = None,
    name: Annotated[str, typer.Option(metavar="NAME", help="The name of the route.")] = "central",
    user: Annotated[str, typer.Option(metavar="USER", help="The user as which the route logs in.")] = "",
    filters: Annotated[
        list[str] | None,
        typer.Option(
            "--filter", metavar="FILTER", help="A topic filter of what is sent; can be repeated. All by default."
        ),
    ] = None,
) -> None:
    """Let a gateway send its messages on to the next broker: adds a route to its configuration.

    The password is asked for, or read from standard input if that is a pipe.
    """
    path = chosen("gateway forward", config, None)
    password = _ask() if user else ""
    secret = path.with_name(f"{name}.password")
    lines = ["", "[[route]]", f"name = {_text(name)}", f"broker = {_text(broker)}"]
    if user:
        lines += [f"user = {_text(user)}", f"password_file = {_text(secret.name)}"]
    if filters:
        lines.append(f"filters = [{', '.join(map(_text, filters))}]")
    with failing_on(ConfigError, OSError, command="gateway forward"), locked(path.parent):
        text = "\n".join([read_text(path).rstrip("\n"), *lines, ""])
        if user:
            write_new(secret, f"{password}\n".encode(), PASSWORD_MODE)
        try:
            if user:
                os.chown(secret, -1, path.stat().st_gid)
            read_configuration(path, text)
            replace_file(path, text.encode())
        except (ConfigError, OSError):
            if user:
                secret.unlink(missing_ok=True)
            raise
    _reload()


def _reload() -> None:
    """Lets the service begin the route, if there is one that runs and this user may."""
    is_running = False
    if os.geteuid() == 0 and Path("/run/systemd/system").is_dir():
        is_running = subprocess.run(["systemctl", "is-active", "--quiet", NAME], check=False).returncode == 0
    if is_running:
        if subprocess.run(RELOAD, check=False).returncode:
            fail("gateway forward", f"{' '.join(RELOAD)} has failed; the route begins with the next start", exit_code=1)
        typer.echo("the route begins; `holdfast uplink status` shows it")
    else:
        typer.echo("the route begins when the gateway starts, or reads its configuration again (SIGHUP)")


def _ask() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    return getpass.getpass("Password at the next broker: ")


def _text(value: str) -> str:
    """Returns a string as TOML has it."""
    return json.dumps(value, ensure_ascii=False)

"""``holdfast gateway forward``: adds a route to the next broker to a gateway's configuration."""

import getpass
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Annotated

import typer

from gateway.config.errors import read_text
from host.errors import ConfigError
from host.files import locked, read_file, replace_file
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
    wanted: dict[str, str | list[str]] = {"name": name, "broker": broker}
    if user:
        wanted |= {"user": user, "password_file": f"{name}.password"}
    if filters:
        wanted["filters"] = filters
    with failing_on(ConfigError, OSError, command="gateway forward"), locked(path.parent):
        is_there = _forward(path, wanted, password)
    typer.echo(f"{path}: the route {name} was there already" if is_there else f"{path}: the route {name} was added")
    _reload()


def _forward(path: Path, wanted: dict[str, str | list[str]], password: str) -> bool:
    """Adds a route to the configuration, and writes its password; returns whether the route was there already.

    What a kill leaves at any moment is a file with the password that no route names: the same again goes on with it.

    Raises ConfigError, OSError; then all is as it was.
    """
    text = read_text(path)
    read_configuration(path, text)
    routes = tomllib.loads(text).get("route", [])
    is_there = wanted in routes
    if not is_there and (others := [route for route in routes if route["name"] == wanted["name"]]):
        to = others[0].get("broker", "elsewhere")
        raise ConfigError(
            f"{path}: there is a route {wanted['name']} already, to {to}, with other keys than these; change it there, "
            "or give this one another name with --name"
        )
    secret = path.with_name(f"{wanted['name']}.password") if "user" in wanted else None
    is_new = secret is not None and not secret.exists()
    if secret is not None:
        _write_password(secret, password, may_replace=is_there, group=path.stat().st_gid)
    if is_there:
        return True
    try:
        lines = ["", "[[route]]", *(f"{key} = {_toml(value)}" for key, value in wanted.items())]
        text = "\n".join([text.rstrip("\n"), *lines, ""])
        read_configuration(path, text)
        replace_file(path, text.encode())
    except (ConfigError, OSError):
        if secret is not None and is_new:
            secret.unlink(missing_ok=True)
        raise
    return False


def _write_password(secret: Path, password: str, *, may_replace: bool, group: int) -> None:
    """Raises ConfigError: the file is there with something else. Raises OSError."""
    content = f"{password}\n".encode()
    if secret.exists() and not may_replace and read_file(secret) != content:
        raise ConfigError(
            f"{secret}: it is there with another content, and no route has it: if a run that was cut off has left it, "
            "delete it; or give the route another name with --name"
        )
    replace_file(secret, content, PASSWORD_MODE)
    os.chown(secret, -1, group)


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


def _toml(value: str | list[str]) -> str:
    """Returns a string, or a list of them, as TOML has it."""
    return json.dumps(value, ensure_ascii=False)

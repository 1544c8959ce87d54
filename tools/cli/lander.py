"""``holdfast lander run``: from the central broker into landing files."""

import signal
from pathlib import Path
from threading import Event
from typing import Annotated

import typer

from cloud import LanderReplaced, LanderRunning, LandingFailed, land
from host.files import write_no_bytecode
from host.mounts import why_volatile
from tools.cli.failure import fail, failing_on, say
from tools.cli.paths import state_directory
from tools.cli.tables.folders import LANDING_DEFAULT

app = typer.Typer(add_completion=False)

REPLACED = 3
"""The exit code by which a service manager sees that it must not start this lander again."""


@app.command()
def run(
    broker: Annotated[
        str, typer.Option(help="The broker to subscribe to, mqtt://host:port, or mqtts:// with TLS.")
    ] = "mqtt://127.0.0.1:1883",
    landing: Annotated[
        str | None,
        typer.Option(
            help="The folder for landing files, or the URL of an object store, s3://BUCKET/PREFIX.",
            show_default=LANDING_DEFAULT,
        ),
    ] = None,
    name: Annotated[
        str, typer.Option(help="The lander's name: its client identifier, and how its files begin.")
    ] = "lander-1",
    topic_filter: Annotated[str, typer.Option("--filter", help="The topic filter to subscribe to.")] = "#",
    group: Annotated[
        str, typer.Option(help="The shared subscription. Landers of one group divide the messages.")
    ] = "lander",
    roll_seconds: Annotated[
        float, typer.Option(min=0.1, help="Seconds after which a landing file is closed at the latest.")
    ] = 60,
    user: Annotated[str | None, typer.Option(help="The user name.")] = None,
    password_file: Annotated[
        Path | None, typer.Option(help="A file with the password, which other users can neither read nor change.")
    ] = None,
    ca: Annotated[Path | None, typer.Option(help="The authorities by which the broker is known, in PEM.")] = None,
    certificate: Annotated[Path | None, typer.Option(help="The lander's own certificate, in PEM.")] = None,
    key: Annotated[Path | None, typer.Option(help="Its key, in PEM.")] = None,
    metrics_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Serve /healthz and /metrics on this port of 127.0.0.1.")
    ] = None,
    volatile: Annotated[
        bool, typer.Option("--volatile", help="Land in a folder that a restart empties, for trials and tests.")
    ] = False,
) -> None:
    """Subscribe to a broker and write its messages into landing files, until SIGTERM or Ctrl-C."""
    write_no_bytecode()
    place = landing or str(state_directory() / "landing")
    if not volatile and "://" not in place and (why := why_volatile(Path(place))):
        fail("lander run", f"{place}: on {why}. So no acknowledgement would hold; --volatile allows it")
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    try:
        with (
            failing_on(OSError, command="lander run", exit_code=1),  # a folder or a port may be back soon
            failing_on(ValueError, LanderRunning, command="lander run"),
        ):
            land(
                broker,
                place,
                stop,
                name=name,
                topic_filter=topic_filter,
                group=group,
                roll_s=roll_seconds,
                user=user,
                password_file=password_file,
                ca=ca,
                certificate=certificate,
                key=key,
                metrics_port=metrics_port,
                say=lambda text: say(f"lander {name}: {text}"),
            )
    except LandingFailed as error:
        fail("lander run", str(error), exit_code=1)
    except LanderReplaced as error:
        fail("lander run", str(error), exit_code=REPLACED)

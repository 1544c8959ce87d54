"""``holdfast lander run``: from the central broker into landing files."""

import signal
from pathlib import Path
from threading import Event
from typing import Annotated

import typer

from cloud.lander import Lander, new_boot
from cloud.landing_file import LANDER_NAME
from cloud.landing_folder import LanderRunning, LandingFolder
from tools.failure import fail, failing_on
from tools.paths import state_directory
from wire.errors import WireError
from wire.topics import check_topic_filter

app = typer.Typer(add_completion=False)


@app.command()
def run(
    broker: Annotated[
        str, typer.Option(help="The broker to subscribe to, mqtt://host:port.")
    ] = "mqtt://127.0.0.1:1883",
    landing: Annotated[
        Path | None, typer.Option(help="The folder for landing files.", show_default="state folder")
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
) -> None:
    """Subscribe to a broker and write its messages into landing files, until SIGTERM or Ctrl-C."""
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    with failing_on(ValueError, WireError, LanderRunning, OSError, command="lander run"):
        if not LANDER_NAME.fullmatch(name):
            raise ValueError(f"--name {name!r}: letters, digits, '.', '_' and '-' only, it becomes a file name")
        check_topic_filter(f"$share/{group}/{topic_filter}")
        folder = LandingFolder(landing or state_directory() / "landing", name, new_boot())
        lander = Lander(broker, folder, topic_filter, group, roll_seconds, lambda text: _say(name, text))
    for leftover in folder.leftovers:
        _say(name, f"removed {leftover}, left by a killed lander and never acknowledged")
    try:
        lander.run(stop)
    except OSError as error:
        fail("lander run", f"cannot land in {folder.path}: {error}; the broker keeps the rest", exit_code=1)
    finally:
        folder.close()


def _say(name: str, text: str) -> None:
    print(f"lander {name}: {text}", flush=True)

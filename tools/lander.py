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
    broker: Annotated[str, typer.Option(help="The central broker, mqtt://host:port.")] = "mqtt://127.0.0.1:1883",
    landing: Annotated[Path | None, typer.Option(help="The landing folder.", show_default="state folder")] = None,
    name: Annotated[str, typer.Option(help="This lander: its client id, and the start of its files.")] = "lander-1",
    topic_filter: Annotated[str, typer.Option("--filter", help="What to land.")] = "#",
    group: Annotated[str, typer.Option(help="The share that landers divide among them.")] = "lander",
    roll_seconds: Annotated[float, typer.Option(min=0.1, help="The longest that a message waits.")] = 60,
) -> None:
    """Run a lander until SIGTERM or Ctrl-C; it then lands and acknowledges what it holds."""
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

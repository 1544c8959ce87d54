"""What is tortured: devices, two gateways, a central broker, two landers and the job, with a line between any two."""

import json
import os
import signal
from pathlib import Path

from tools.lab.firmware import find_firmware
from tools.lab.journal import Made, read_journal
from tools.lab.sim.virtual_line import Dice
from tools.lab.testing.gateway import Gateway
from tools.lab.testing.mosquitto import Mosquitto
from tools.lab.testing.network_link import NetworkLink
from tools.lab.testing.ports import free_port
from tools.lab.testing.process import Process, holdfast
from tools.lab.testing.serial_line import PacedLine
from tools.lab.torture.site import Site
from tools.lab.torture.whole_way.senders import CENTRAL, KINDS, LIMITED, NORTH, SOUTH, Sender

GATEWAYS = (NORTH, SOUTH)
LANDERS = ("lander-1", "lander-2")
JOB = "job"
JOB_EVERY = "2s"
DEVICE_QOS = {"north-board": 1, "south-board": 2}
DEVICE_SHARE = 100  # one reading in 100 is a device's, if its line is fast enough for it
DEVICE_RATE = 20  # readings a second that a device is asked for; it makes more
SERIAL_BAUD = 115_200
SERIAL_ERRORS = 12_500  # one byte in this number has a wrong bit
SAMPLING_INTERVAL_MS = 100
LIMITED_AGE_S = 2
LIMITED_MESSAGES = 40
ROLL_S = 1
WINDOW = 500  # messages that the central broker sends to a lander ahead of their acknowledgement
READY = dict.fromkeys(LANDERS, "subscribed") | dict.fromkeys(DEVICE_QOS, "boot")

SERIAL = f'[[listener]]\nkind = "serial"\ndevice = "{{device}}"\nbaud = {SERIAL_BAUD}\n'
ROUTE = """\
[[route]]
name = "{name}"
broker = "mqtt://127.0.0.1:{port}"
keep_alive_s = 2
backoff_shortest_ms = 50
backoff_longest_ms = 500
{more}
[[route.shape]]
max_qos = 1
"""
"""mosquitto 2.0.11 has no shared subscription after a restart until a member connects. What it gets at QoS 1 until then
it says it has not kept; a QoS 2 message that is released then is lost."""
ROUTES = {
    "main": (NORTH, 'order = "strict"\nfilters = ["telemetry/#"]\n'),
    "lanes": (
        SOUTH,
        'order = "live_first"\nframing = "batch"\nbatch_max_age_ms = 200\nstatement_interval_s = 1\n'
        'filters = ["telemetry/#"]\n',
    ),
    LIMITED: (
        SOUTH,
        f'filters = ["{LIMITED}/#"]\nmax_age_s = {LIMITED_AGE_S}\nmax_messages = {LIMITED_MESSAGES}\n'
        "statement_interval_s = 1\n",
    ),
}
"""The routes to the central broker, each with its gateway and its settings. What `limited` drops are the gaps."""


class WholeWay(Site):
    """All processes and files of a run; `open` starts them, `close` ends them.

    Args:
        folder: an empty folder.
        readings: how many there are, about.
        flow_s: how long they flow.
        seed: of the noise on serial lines.

    Attributes:
        links: the lines over TCP: of each sender, each route and each lander, by these names.
        lines: the serial lines, by the device.
        senders: the publishers.
        landing, tables: the folders of the landing files and the tables.
    """

    def __init__(self, folder: Path, readings: int, flow_s: float, seed: int) -> None:
        super().__init__()
        self.folder = folder
        self.landing, self.tables = folder / "landing", folder / "tables"
        (folder / CENTRAL).mkdir()
        self.central = Mosquitto(folder / CENTRAL, f"max_inflight_messages {WINDOW}")
        ports = {CENTRAL: self.central.port, **{name: free_port() for name in GATEWAYS}}
        self._ports = ports
        self.links = {kind.name: NetworkLink("127.0.0.1", ports[kind.broker]) for kind in KINDS}
        self.links |= {name: NetworkLink("127.0.0.1", self.central.port) for name in (*ROUTES, *LANDERS)}
        self.lines = {
            name: PacedLine(Dice(seed + place), SERIAL_BAUD, SERIAL_ERRORS) for place, name in enumerate(DEVICE_QOS)
        }
        self.processes = {CENTRAL: self.central}
        self._stopped: set[str] = set()
        self._device_readings = max(20, min(readings // DEVICE_SHARE, int(flow_s * DEVICE_RATE)))
        self.senders = [Sender(kind, self.links[kind.name].port, readings * kind.share // 100) for kind in KINDS]
        self.firmware, _ = find_firmware()

    async def open(self) -> None:
        """Starts each process after its peers. Raises ProcessFailed, OSError."""
        for line in self.lines.values():
            line.open()
        for link in self.links.values():
            await link.open()
        self.central.start()
        for name in LANDERS:
            await self._add(name, holdfast(*self._lander_arguments(name)))
        for name in GATEWAYS:
            self.processes[name] = self._gateway(name)
            await self.processes[name].up()
        for name in DEVICE_QOS:
            await self._add(name, self.firmware.command(self._device_config(name)), self.firmware.environment)
        await self._add(JOB, holdfast("cloud", "ingest", *self.folders, "--every", JOB_EVERY, "--json"))

    async def _add(self, name: str, argv: list[str], environment: dict[str, str] | None = None) -> None:
        ready = READY.get(name, "")
        self.processes[name] = Process(name, argv, self.folder / f"{name}.log", environment, ready)
        await self.processes[name].up()

    def kill_with_children(self, name: str) -> None:
        """SIGKILL to a process and to all processes that it started."""
        if self.processes[name].running:
            os.killpg(self.processes[name].pid, signal.SIGKILL)
        self.processes[name].kill()

    def is_done(self, name: str) -> bool:
        return name in self._stopped or (name in DEVICE_QOS and self.counted(name) >= self._device_readings)

    @property
    def folders(self) -> tuple[str, ...]:
        """The options of commands that name the folders of landing files and tables."""
        return "--landing", str(self.landing), "--tables", str(self.tables)

    def job_runs(self) -> list[str]:
        """What the job has told of each of its runs, as JSON."""
        return [line for line in (self.folder / f"{JOB}.log").read_text().splitlines() if line.startswith("{")]

    def counted(self, device: str) -> int:
        """How many readings a device has counted."""
        return sum(one.readings for one in read_journal(device, self.folder / f"{device}.journal"))

    def made(self) -> list[Made]:
        """The messages that devices have counted."""
        return [one for name in DEVICE_QOS for one in read_journal(name, self.folder / f"{name}.journal")]

    def are_devices_done(self) -> bool:
        """Whether each device has made all of its readings."""
        return all(self.counted(name) >= self._device_readings for name in DEVICE_QOS)

    async def stop(self, *names: str) -> None:
        """Ends processes in this order (SIGTERM), for good."""
        for name in names:
            self._stopped.add(name)
            await self.processes[name].down()

    async def run(self, name: str, *arguments: str) -> tuple[int, list[str]]:
        """Runs a command to its end; returns its exit code and its lines."""
        process = self.processes[name] = Process(name, holdfast(*arguments), self.folder / f"{name}.log")
        return await process.to_end()

    async def close(self) -> None:
        """Ends all processes, and unplugs all lines."""
        await super().close()
        for line in self.lines.values():
            line.close()

    def _lander_arguments(self, name: str) -> list[str]:
        return [
            "lander", "run", "--volatile",
            "--name", name,
            "--group", "landers",
            "--broker", f"mqtt://127.0.0.1:{self.links[name].port}",
            "--landing", str(self.landing),
            "--roll-seconds", str(ROLL_S),
        ]  # fmt: skip

    def _gateway(self, name: str) -> Gateway:
        device = next(device for device in DEVICE_QOS if device.startswith(name))
        tables = SERIAL.format(device=self.lines[device].far)
        for route, (gateway, more) in ROUTES.items():
            if gateway == name:
                tables += ROUTE.format(name=route, port=self.links[route].port, more=more)
        (self.folder / name).mkdir()
        return Gateway(self.folder / name, tables, name=name, port=self._ports[name])

    def _device_config(self, name: str) -> str:
        config = {
            "client_id": name,
            "topic": f"telemetry/{name}",
            "port": {"kind": "uart", "path": self.lines[name].near, "baud": SERIAL_BAUD},
            "flash": {"path": f"{self.folder}/{name}.flash", "sector_count": 64},
            "qos": DEVICE_QOS[name],
            "interval_ms": SAMPLING_INTERVAL_MS,
            "clock": "none",
            "sensors": ["host"],
            "readings_limit": self._device_readings,
            "journal": f"{self.folder}/{name}.journal",
        }
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(config))
        return str(path)

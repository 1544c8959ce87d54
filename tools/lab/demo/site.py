"""The demo's site: every process of a real installation on one machine, and the links between them."""

import json
from pathlib import Path
from typing import NamedTuple

from tools.lab.firmware import Firmware
from tools.lab.testing.client import end_session
from tools.lab.testing.network_link import NetworkLink
from tools.lab.testing.ports import free_port
from tools.lab.testing.process import Process, holdfast
from tools.lab.testing.serial_line import SerialLine
from uplink.control import ask

CENTRAL, GATEWAY, LANDER, JOB = "central", "gateway", "lander", "job"
NETWORK_DEVICE, SERIAL_DEVICE = "garage", "greenhouse"
DEVICES = (NETWORK_DEVICE, SERIAL_DEVICE)
QOS = {NETWORK_DEVICE: 1, SERIAL_DEVICE: 2}
SAMPLING_INTERVAL_MS = 50
FLASH_SECTORS = 64
SERIAL_BAUD = 115_200
LANDING_ROLL_S = 1
BATCH_AGE_MS = 1000
RESEND_AFTER_S = 4
JOB_EVERY_S = 2


class Broker(NamedTuple):
    """The address of a broker."""

    host: str
    port: int

    @property
    def url(self) -> str:
        return f"mqtt://{self.host}:{self.port}"


class Site:
    """Two devices, a gateway, a central broker and a lander; ``open_central`` and then ``open`` start them, and
    ``open_job`` the Spark job; ``close`` ends them.

    With a central broker of its own the job gives receipts, and the gateway keeps messages until these; so do the
    devices, if they are told to.

    Args:
        folder: an empty folder for all that the site keeps.
        run: a word that sets this run's topics and sessions apart on a broker that others use too.
        broker: a central broker that runs already, or None to start Holdfast's own.
        firmware: what runs the devices.
        readings: how many readings the devices make together before they stop sampling.
        until: until when devices keep a message, as their configuration says it.

    ``bytes_sent`` are the bytes that the gateway has sent to the central broker, above TCP.
    """

    def __init__(
        self,
        folder: Path,
        run: str,
        broker: Broker | None,
        firmware: Firmware,
        readings: int,
        until: str = "acknowledgement",
    ) -> None:
        self.folder = folder
        self.landing = folder / "landing"
        self.origins = {device: f"{device}-{run}" for device in DEVICES}
        self.journals = {device: folder / f"{device}.journal" for device in DEVICES}
        self.processes: dict[str, Process] = {}
        self.line = SerialLine()
        self._lander, self._gateway = f"{LANDER}-{run}", f"{GATEWAY}-{run}"
        self.topic_root = f"holdfast-demo/{run}"
        self._firmware = firmware
        self._readings = readings
        self._until = until
        self.owns_central = broker is None
        self.central_store = folder / "central"
        self.tables = folder / "tables"
        self.central = broker or Broker("127.0.0.1", free_port())
        self.gateway = Broker("127.0.0.1", free_port())
        self.link = NetworkLink(*self.central, tap=self._count_bytes)
        self.bytes_sent = 0

    def _count_bytes(self, _connection: object, comes_from_gateway: bool, data: bytes) -> None:
        if comes_from_gateway:
            self.bytes_sent += len(data)

    async def open_central(self) -> None:
        """Makes the links, and starts the central broker unless it runs already."""
        self.line.open()
        await self.link.open()
        if self.owns_central:
            await self._start(CENTRAL, holdfast("gateway", "run", "--config", self._central_config()), "ready")

    async def open(self) -> None:
        """Writes the configurations of the other processes, and starts each after its peers."""
        await self._start(LANDER, self._lander_command(), "subscribed")
        await self._start(GATEWAY, holdfast("gateway", "run", "--config", self._gateway_config()), "ready")
        for device in DEVICES:
            command = self._firmware.command(self._device_config(device))
            await self._start(device, command, "connected to", self._firmware.environment)

    async def open_job(self) -> None:
        """Starts the job, which runs again and again."""
        receipts = ("--receipts", self.central.url) if self.owns_central else ()
        folders = ("--landing", str(self.landing), "--tables", str(self.tables))
        await self._start(JOB, holdfast("cloud", "ingest", *folders, "--every", f"{JOB_EVERY_S}s", "--json", *receipts))

    def job_runs(self) -> int:
        """How many runs the job has ended."""
        return sum(line.startswith("{") for line in self.processes[JOB].lines)

    def sent_again(self) -> int:
        """How many messages the gateway has sent again since its last start, as the tables had passed over them."""
        return int(ask(self.folder / GATEWAY, "status")[0]["unproven_sent"])

    async def close(self) -> None:
        """Ends all processes, the devices first and the central broker last. If the demo did not start the broker, it
        ends the demo's sessions there."""
        for process in reversed(self.processes.values()):
            await process.down()
        await self.link.cut()
        self.line.close()
        if not self.owns_central:
            for client_id in (self._lander, f"{self._gateway}-{CENTRAL}"):
                await end_session(self.central.port, client_id, self.central.host)

    def failed(self) -> list[str]:
        """Returns the names of the processes that ended by themselves."""
        return [name for name, process in self.processes.items() if not process.running]

    async def _start(
        self, name: str, argv: list[str], ready: str = "", environment: dict[str, str] | None = None
    ) -> None:
        self.processes[name] = Process(name, argv, self.folder / f"{name}.log", environment, ready)
        await self.processes[name].up()

    def _lander_command(self) -> list[str]:
        return holdfast(
            "lander", "run", "--volatile",
            "--name", self._lander,
            "--broker", self.central.url,
            "--filter", f"{self.topic_root}/#",
            "--group", self._lander,
            "--landing", str(self.landing),
            "--roll-seconds", str(LANDING_ROLL_S),
        )  # fmt: skip

    def _central_config(self) -> str:
        """Writes the central broker's configuration, which lets the route identify the devices' messages, and the job
        give receipts."""
        rules = "allow * publish,subscribe #\nallow - identify *\nallow - publish hf/receipt/#\n"
        return self._write("central.toml", f"""\
name = "central"
acl = "{self._write("central.rules", rules)}"
[store]
path = "{self.central_store}"
volatile = true
[[listener]]
kind = "tcp"
host = "{self.central.host}"
port = {self.central.port}
""")  # fmt: skip

    def _gateway_config(self) -> str:
        keeping = f'until = "receipt"\nresend_after_s = {RESEND_AFTER_S}' if self.owns_central else ""
        return self._write("gateway.toml", f"""\
name = "{self._gateway}"
[store]
path = "{self.folder}/gateway"
volatile = true
[[listener]]
kind = "tcp"
host = "127.0.0.1"
port = {self.gateway.port}
[[listener]]
kind = "serial"
device = "{self.line.far}"
baud = {SERIAL_BAUD}
[[route]]
name = "{CENTRAL}"
broker = "mqtt://127.0.0.1:{self.link.port}"
filters = ["{self.topic_root}/#"]
framing = "batch"
batch_topic = "{self.topic_root}/batch"
batch_max_age_ms = {BATCH_AGE_MS}
{keeping}
""")  # fmt: skip

    def _device_config(self, device: str) -> str:
        """Writes a device's configuration. The one on the network has a clock, the one on the serial line has none."""
        tcp = {"kind": "tcp", "host": "127.0.0.1", "port": self.gateway.port}
        uart = {"kind": "uart", "path": self.line.near, "baud": SERIAL_BAUD}
        first = device == NETWORK_DEVICE
        config = {
            "client_id": self.origins[device],
            "topic": f"{self.topic_root}/{device}",
            "port": tcp if first else uart,
            "flash": {"path": f"{self.folder}/{device}.flash", "sector_count": FLASH_SECTORS},
            "qos": QOS[device],
            "until": self._until,
            "interval_ms": SAMPLING_INTERVAL_MS,
            "clock": "system" if first else "none",
            "sensors": ["host"],
            "readings_limit": self._readings // 2 + (self._readings % 2 if first else 0),
            "journal": str(self.journals[device]),
        }
        return self._write(f"{device}.json", json.dumps(config, indent=2))

    def _write(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)

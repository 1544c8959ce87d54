"""A lander's folder, the job's landing folder, where files come late and in any order, and a driver that is killed."""

import hashlib
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pyarrow.parquet as pq

from cloud.landing.file import FileNumber, Row
from cloud.landing.folder import LandingFolder
from cloud.landing.manifest import Manifest, read_manifest
from tools.cli.paths import source_root
from tools.lab.torture.cloud.cut import Undone
from tools.lab.torture.cloud.driver import Answer, Order
from tools.lab.torture.cloud.lander import Landing
from tools.lab.torture.cloud.messages import DECODER, Key

COPIER = "copier-1"


class DriverFailed(Exception):
    """The driver has ended by itself. The text is its last line."""


class Site:
    """All folders of one run."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.tables = folder / "tables"
        self.files: dict[str, list[Key]] = {}
        self.struck: dict[str, int] = {}
        self._chance = chance
        self._origin, self._landing = folder / "lander", folder / "landing"
        self._folder, self._left, self._messages = folder, folder / "left", folder / "messages"
        self._decoder = folder / "meters.py"
        self._decoder.write_text(DECODER)
        for made in (self._origin, self._landing):
            made.mkdir()
        self._driver: subprocess.Popen[str] | None = None
        self._lander: subprocess.Popen[str] | None = None
        self._pending: set[str] = set()
        self._brought: list[str] = []
        self._copies = 0
        self._boot = 0

    def close(self) -> None:
        """Ends the driver and the lander."""
        self._end_driver()
        if self._lander is not None:
            self._lander.communicate()
            self._lander = None

    def strike(self, name: str) -> None:
        """Counts a fault."""
        self.struck[name] = self.struck.get(name, 0) + 1

    # The lander

    def land(self, rows: list[Row]) -> bool:
        """Lands messages. Returns whether they are acknowledged; a lander that was killed gets them again."""
        self._boot += 1
        if self._chance.random() < 0.5:
            self._messages.write_bytes(msgspec.msgpack.encode(rows))
            self._left.unlink(missing_ok=True)
            landing = Landing(str(self._messages), self._boot, self._chance.randrange(1, 9))
            self._lander = self._lander or self._spawn("lander", self._origin, self._left)
            ended_by = self._ask(self._lander, msgspec.json.encode(landing).decode())
            if ended_by is None:
                raise DriverFailed(f"the lander: {self._last_line('lander')}")
            if int(ended_by):
                self.strike("lander killed")
                self._cut_power()
                return False
        else:
            folder = LandingFolder(self._origin, "lander-1", self._boot)
            folder.land(rows)
            folder.close()
        return True

    # The way of the files to the job

    def carry(self, last: bool = False) -> None:
        """Brings files to the job: some late, without their manifest, without their file, truncated, or twice."""
        folder = LandingFolder(self._origin, "lander-1", self._boot)  # a new start removes what a killed lander left
        folder.close()
        for path in sorted(self._origin.glob("*.json")):
            if f"{path.stem}.parquet" not in self.files:
                self._note(path)
        names = sorted(self._pending)
        self._chance.shuffle(names)
        for name in names:
            if last:
                self._bring(name)
            else:
                self._bring_somehow(name)
        if self._brought and self._chance.random() < 0.2:
            self._bring_again()

    def _note(self, path: Path) -> None:
        described = read_manifest(path)
        content = path.with_suffix(".parquet")
        rows = pq.read_table(content, columns=["origin", "epoch", "seq", "payload"], partitioning=None).to_pylist()
        self.files[described.file] = [Key(**row) for row in rows]
        self._pending.add(path.stem)
        if described.lander != COPIER and self._chance.random() < 0.2:
            self.strike("file twice")
            self._copy(described, content)

    def _copy(self, described: Manifest, content: Path) -> None:
        """Lets another lander land the same messages."""
        self._copies += 1
        name = FileNumber(COPIER, 0xC0, self._copies)
        copy = msgspec.structs.replace(
            described, file=f"{name.stem}.parquet", lander=name.lander, boot=name.boot, number=name.number, own=None
        )
        assert hashlib.sha256(content.read_bytes()).hexdigest() == copy.sha256
        shutil.copyfile(content, self._origin / copy.file)
        (self._origin / f"{name.stem}.json").write_bytes(msgspec.json.encode(copy))
        self.files[copy.file] = self.files[described.file]
        self._pending.add(name.stem)

    def _bring_somehow(self, name: str) -> None:
        source = self._origin / f"{name}.parquet"
        match self._chance.choice(("whole", "whole", "whole", "late", "no file", "no manifest", "truncated")):
            case "whole":
                self._bring(name)
                return
            case "no file":
                shutil.copyfile(self._origin / f"{name}.json", self._landing / f"{name}.json")
                self.strike("file missing")
            case "no manifest":
                shutil.copyfile(source, self._landing / source.name)
                self.strike("manifest late")
            case "truncated":
                content = source.read_bytes()
                (self._landing / source.name).write_bytes(content[: self._chance.randrange(len(content))])
                shutil.copyfile(self._origin / f"{name}.json", self._landing / f"{name}.json")
                self.strike("file truncated")
            case "late":
                self.strike("file late")

    def _bring(self, name: str) -> None:
        for ending in ("parquet", "json"):
            shutil.copyfile(self._origin / f"{name}.{ending}", self._landing / f".{name}.{ending}")
            (self._landing / f".{name}.{ending}").rename(self._landing / f"{name}.{ending}")
        self._pending.discard(name)
        self._brought.append(name)

    def _bring_again(self) -> None:
        """Brings a manifest that was there before, with its file or without."""
        self.strike("manifest again")
        name = self._chance.choice(self._brought)
        for ending in self._chance.choice((("json",), ("parquet", "json"))):
            shutil.copyfile(self._origin / f"{name}.{ending}", self._landing / f"{name}.{ending}")

    # The driver

    def _end_driver(self) -> None:
        if self._driver is not None:
            self._driver.kill()
            self._driver.communicate()
            self._driver = None

    def order(self, order: Order) -> Answer:
        """Lets the driver do something, and cuts the power sometimes where it was killed. Raises DriverFailed."""
        self._left.unlink(missing_ok=True)
        driver = self._driver or self._start()
        answer = self._ask(driver, msgspec.json.encode(order).decode())
        if answer is None:
            self._end_driver()
            if not self._left.exists():
                raise DriverFailed(f"{order.do}: {self._last_line('driver')}")
        elif order.with_java:
            self._end_driver()  # it carried this out by itself, and no process in which delta-rs has threads can fork
        found = msgspec.json.decode(answer, type=Answer) if answer else Answer(True, order.cut or 0)
        if found.was_cut:
            self.strike(f"{order.do} killed{' with Java' if order.with_java else ''}")
            self._cut_power()
        return found

    def _start(self) -> "subprocess.Popen[str]":
        self._driver = self._spawn("driver", self._landing, self.tables, self._decoder, self._left)
        if self._read(self._driver) is None:
            self._end_driver()
            raise DriverFailed(self._last_line("driver"))
        return self._driver

    def _spawn(self, name: str, *arguments: Path) -> "subprocess.Popen[str]":
        """Starts a module of this folder. Its errors are in the log of its name."""
        command = [sys.executable, "-m", f"tools.lab.torture.cloud.{name}", *map(str, arguments)]
        with self._log(name).open("w") as log:
            return subprocess.Popen(
                command, cwd=source_root(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _ask(self, process: "subprocess.Popen[str]", order: str) -> str | None:
        assert process.stdin is not None
        process.stdin.write(f"{order}\n")
        process.stdin.flush()
        return self._read(process)

    def _read(self, process: "subprocess.Popen[str]") -> str | None:
        assert process.stdout is not None
        return process.stdout.readline() or None

    def _last_line(self, name: str) -> str:
        """Returns the line of a log that names the last error, else the last line."""
        lines = self._log(name).read_text().strip().splitlines() or [f"the {name} said nothing"]
        return next(
            (line for line in reversed(lines) if re.match(r"[\w.]+(Error|Exception|Failed|Lost)\b", line)), lines[-1]
        )

    # The disk

    def _cut_power(self) -> None:
        """Undoes, as a power cut may, what no sync has made durable."""
        if self._chance.random() < 0.5:
            return
        self.strike("power cut")
        undone = msgspec.msgpack.decode(self._left.read_bytes(), type=Undone)
        for name in undone.added:
            if self._chance.random() < 0.5:
                Path(name).unlink(missing_ok=True)
        for name in filter(os.path.exists, undone.content):
            if self._chance.random() < 0.5:
                os.truncate(name, self._chance.randrange(os.path.getsize(name) + 1))
        for name, content in undone.removed.items():
            if self._chance.random() < 0.5 and os.path.isdir(os.path.dirname(name)) and not os.path.exists(name):
                Path(name).write_bytes(content)

    def damage(self) -> None:
        """Does to the checkpoint, and to what others wrote to Delta's logs, what a power cut may do."""
        checkpoint = self.tables / "_checkpoint"
        # A job that was killed while it made a table leaves a log without a commit.
        logs = sorted(log for log in self.tables.glob("*/_delta_log") if any(log.glob("[0-9]*.*")))
        match self._chance.choice(("empty", "gone", "log", "log", "summary")):
            case "empty":
                self.strike("checkpoint emptied")
                for path in checkpoint.glob("*"):
                    path.write_bytes(path.read_bytes()[: self._chance.choice((0, 7))])
            case "gone":
                self.strike("checkpoint gone")
                shutil.rmtree(checkpoint, ignore_errors=True)
            case "log" if logs:
                self.strike("Delta log cut")
                log = self._chance.choice(logs)
                newest = max(int(path.name[:20]) for path in log.glob("[0-9]*.*"))
                cut = b'{"commitInfo":{"timestamp":1760000000000,"operation":"VACUUM END"}}'
                (log / f"{newest + 1:020}.json").write_bytes(cut[: self._chance.randrange(len(cut))])
            case "summary" if logs and (self._chance.choice(logs) / f"{0:020}.json").exists():
                self.strike("Delta checkpoint cut")
                for log in logs:
                    for path in log.glob("*.checkpoint.parquet"):
                        if (log / f"{0:020}.json").exists():
                            path.write_bytes(path.read_bytes()[: self._chance.randrange(100)])
            case _:
                pass

"""Containers of an image, run by crun without a daemon, in namespaces of their own."""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

START_S, END_S = 60.0, 60.0
VOLUME = "/var/lib/holdfast"
NEEDED = ("crun", "mmdebstrap", "nsenter", "umoci")
# crun works with version 2 of cgroups alone, which a machine may have elsewhere or not at all.
PLAIN_CGROUPS = 'mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec "$@"'


def skip_without_containers() -> None:
    for needed in NEEDED:
        if shutil.which(needed) is None:
            pytest.skip(f"there is no {needed}")
    if os.geteuid():
        pytest.skip("only root can unpack an image as it is")


def unpack(image: Path, folder: Path) -> Path:
    """Unpacks the tar archive of an OCI layout; returns the bundle, with the root folder and its configuration."""
    layout, bundle = folder / "layout", folder / "bundle"
    layout.mkdir()
    subprocess.run(["tar", "-xf", image, "-C", layout], check=True)
    (described,) = json.loads((layout / "index.json").read_text())["manifests"]
    tag = described["annotations"]["org.opencontainers.image.ref.name"]
    subprocess.run(["umoci", "--log=error", "unpack", "--image", f"{layout}:{tag}", bundle], check=True)
    return bundle


class Container:
    """One container, whose root folder is read-only. ``folder`` is empty, and gets the volume."""

    def __init__(self, bundle: Path, folder: Path) -> None:
        self.volume = folder / "volume"
        self._bundle = bundle
        self._config, self._log = folder / "config.json", folder / "log"
        self._name = f"holdfast-test-{os.getpid()}-{folder.name}"
        self._crun = ["unshare", "--mount", "sh", "-ec", PLAIN_CGROUPS, "sh", "crun", "--root", str(folder / "state")]
        self._crun.append("--cgroup-manager=disabled")
        self._process: subprocess.Popen[bytes] | None = None
        user = json.loads((bundle / "config.json").read_text())["process"]["user"]
        self._user = f"{user['uid']}:{user['gid']}"
        owner = (bundle / "rootfs" / VOLUME[1:]).stat()
        self.volume.mkdir(mode=0o700)  # a new volume gets what the image has there, its owner too
        os.chown(self.volume, owner.st_uid, owner.st_gid)

    def start(self, *words: str, on_disk: bool = True) -> None:
        """Starts it; ``on_disk`` False: with a volume in memory."""
        config: dict[str, Any] = json.loads((self._bundle / "config.json").read_text())
        config["process"]["terminal"] = False
        config["process"]["args"][3:] = words or ["gateway", "run"]
        config["root"]["path"], config["root"]["readonly"] = str(self._bundle / "rootfs"), True
        config["mounts"] = [one for one in config["mounts"] if one["destination"] not in (VOLUME, "/sys/fs/cgroup")]
        mount = {"type": "bind", "source": str(self.volume), "options": ["rbind", "rw", "nosuid", "nodev"]}
        if not on_disk:
            mount = {"type": "tmpfs", "source": "tmpfs", "options": ["rw", "mode=1777"]}
        config["mounts"].append({"destination": VOLUME, **mount})
        config["linux"].pop("resources", None)
        self._config.write_text(json.dumps(config))
        command = [*self._crun, "run", "--bundle", str(self._bundle), "--config", str(self._config), self._name]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def log(self) -> str:
        return self._log.read_text()

    def wait_for(self, said: str) -> None:
        """Waits for a word in the log."""
        until = time.monotonic() + START_S
        while said not in self.log():
            assert self._process is not None
            ended = self._process.poll()
            assert ended is None and time.monotonic() < until, f"{said!r} is not in the log, {ended=}: {self.log()}"
            time.sleep(0.1)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs a program inside, as the image's user."""
        command = [*self._crun, "exec", f"--user={self._user}", self._name, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def beside(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs a program of this machine in the network of the container."""
        command = [f"--net=/proc/{self.process_id()}/ns/net", *words]
        return subprocess.run(["nsenter", *command], capture_output=True, text=True, check=False, timeout=END_S)

    def process_id(self) -> int:
        """Returns the number that this machine knows the container's first process by."""
        done = subprocess.run([*self._crun, "state", self._name], capture_output=True, text=True, check=True)
        return int(json.loads(done.stdout)["pid"])

    def kill(self, signal: str) -> None:
        subprocess.run([*self._crun, "kill", self._name, signal], check=True)

    def ended(self) -> int:
        """Waits until it has ended; returns its exit code."""
        assert self._process is not None
        return self._process.wait(END_S)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill("KILL")
            self._process.wait(END_S)

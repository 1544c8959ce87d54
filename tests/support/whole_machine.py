"""A Debian on a disk image that systemd starts as process 1, in namespaces of its own; its power can be cut.

The image has an ext4 of its own. Its shutdown without a flush of its journal leaves what a power cut leaves: what was
synced, and of the rest nothing that one can rely on. It needs root, loop devices and mmdebstrap.
"""

import fcntl
import os
import shutil
import signal
import struct
import subprocess
import time
from pathlib import Path

import pytest

from tools.cli.paths import cache_directory

IMAGE_BYTES = 1_500_000_000
SHUTDOWN, WITHOUT_FLUSH = 0x8004587D, 2  # EXT4_IOC_SHUTDOWN, EXT4_GOING_FLAGS_NOLOGFLUSH (fs/ext4/ext4.h)
START_S, RUN_S = 60.0, 400.0
PACKAGES = "systemd-sysv,dbus,mosquitto-clients,passwd,python3"
BOOT = """
mount --make-rprivate /
mount --bind {root} {root}
cd {root}
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs dev
for name in null zero full random urandom tty; do touch dev/$name; mount --bind /dev/$name dev/$name; done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs tmpfs dev/shm
ln -s /proc/self/fd dev/fd
mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup
mount -t cgroup2 cgroup2 sys/fs/cgroup
hostname gateway
ip link set lo up
mkdir -p mnt/old
pivot_root . mnt/old
umount -l /mnt/old
exec env -i container=unshare PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --log-target=null --show-status=0
"""


def root_folder(suite: str) -> Path:
    """Returns the folder of a fresh Debian, which is made once. Skips the test if it cannot be made."""
    for needed in ("ip", "losetup", "mkfs.ext4", "mmdebstrap", "nsenter", "unshare"):
        if shutil.which(needed) is None:
            pytest.skip(f"there is no {needed}")
    if os.geteuid():
        pytest.skip("only root can start a machine")
    folder = cache_directory() / f"debian-{suite}"
    if not folder.is_dir():
        making = folder.with_name(f"{folder.name}.new")
        shutil.rmtree(making, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        command = ["mmdebstrap", "--variant=apt", f"--include={PACKAGES}", suite, str(making)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"mmdebstrap made no {suite}: {done.stderr[-200:]}")
        making.rename(folder)
    return folder


class Machine:
    """One machine. ``folder`` is empty, and gets its disk."""

    def __init__(self, folder: Path, suite: str) -> None:
        source = root_folder(suite)
        self._disk, self.root = folder / "disk", folder / "root"
        self.root.mkdir()
        with self._disk.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        subprocess.run(["mkfs.ext4", "-q", "-F", self._disk], check=True)
        self._mount()
        subprocess.run(["cp", "-a", f"{source}/.", self.root], check=True)
        self._outer: subprocess.Popen[bytes] | None = None
        self._begun: list[subprocess.Popen[bytes]] = []
        self._first = 0

    def start(self) -> None:
        """Starts systemd, and waits until it takes commands."""
        command = ["unshare", "--fork", "--pid", "--mount", "--uts", "--ipc", "--cgroup", "--net", "--kill-child"]
        program = "set -e\n" + BOOT.format(root=self.root)
        self._outer = subprocess.Popen([*command, "bash", "-c", program], stdin=subprocess.DEVNULL)
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            children = Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children").read_text().split()
            self._first = int(children[0]) if children else 0
            is_systemd = self._first and Path(f"/proc/{self._first}/comm").read_text() == "systemd\n"
            if is_systemd and self.run("systemctl is-system-running | grep -E 'running|degraded'", check=False).stdout:
                return
            time.sleep(0.2)
        pytest.fail("systemd did not start")

    def run(self, script: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs shell commands as root of the machine."""
        command = ["nsenter", "--target", str(self._first), "--all", "bash", "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
        assert done.returncode == 0 or not check, f"{script}\n{done.stdout}{done.stderr}"
        return done

    def says(self, script: str) -> str:
        return self.run(script).stdout.strip()

    def begin(self, script: str) -> None:
        """Runs shell commands beside the test, until they end or the power is cut."""
        command = ["nsenter", "--target", str(self._first), "--all", "bash", "-c", script]
        quiet = subprocess.DEVNULL
        self._begun.append(subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet))

    def until(self, script: str, seconds: float = 120.0) -> None:
        """Waits until shell commands end with 0."""
        until = time.monotonic() + seconds
        while self.run(script, check=False).returncode:
            assert time.monotonic() < until, f"{script}\n{self.says('journalctl -n 40 --no-pager')}"
            time.sleep(0.3)

    def take(self, file: Path) -> str:
        """Copies a file into the machine; returns its path there."""
        shutil.copy(file, self.root / file.name)
        return f"/{file.name}"

    def cut_power(self) -> None:
        """Ends all at once, with what the disk had at that moment."""
        descriptor = os.open(self.root, os.O_RDONLY)
        fcntl.ioctl(descriptor, SHUTDOWN, struct.pack("I", WITHOUT_FLUSH))
        os.close(descriptor)
        self._stop()
        self._mount()

    def close(self) -> None:
        self._stop()

    def _mount(self) -> None:
        subprocess.run(["mount", "-o", "loop", self._disk, self.root], check=True)

    def _stop(self) -> None:
        if self._outer is not None:
            self._outer.send_signal(signal.SIGKILL)
            self._outer.wait()
            self._outer = None
        while self._begun:
            self._begun[-1].kill()
            self._begun.pop().wait()
        subprocess.run(["umount", self.root], check=True)
        until = time.monotonic() + START_S
        # The file system is there until the last process of the machine has ended.
        while subprocess.run(["losetup", "-j", self._disk], capture_output=True, check=True).stdout:
            assert time.monotonic() < until, "the disk is still in use"
            time.sleep(0.1)

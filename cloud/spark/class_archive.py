"""An archive of the Java classes that a session of Spark loads: with it a session starts in half the processor time.

Java reads and verifies some 20,000 classes before the first query. It can take them from an archive instead
(application class-data sharing, JEP 350). The first session of a Java and a Spark makes it, by a program that does a
little of everything.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pyspark

from cloud.spark.java import Java
from host.files import open_lock

_RECORDING = "HOLDFAST_RECORDS_CLASSES"
_TIMEOUT_S = 300
_UNUSED_S = 30 * 86_400
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"


def archive_options(java: Java, jars: Sequence[Path], cache: Path) -> str:
    """Returns the options by which Java takes classes from the archive, which is made if there is none; nothing if it
    cannot be made.

    jars: the class path before Spark's own jars. An archive serves this one alone.
    """
    if unfinished := os.environ.get(_RECORDING):
        return f"-XX:ArchiveClassesAtExit={unfinished} {_QUIET}"
    archive = cache / f"classes-{_fingerprint(java, jars)}.jsa"
    try:
        if not archive.exists():
            _make(archive)
        os.utime(archive)
        is_usable = archive.stat().st_size > 0
    except OSError:
        is_usable = False
    # Java goes on without an archive that does not fit.
    return f"-XX:SharedArchiveFile={archive} {_QUIET}" if is_usable else ""


def _fingerprint(java: Java, jars: Sequence[Path]) -> str:
    """Returns a short text: another one for another Java, another Spark, and other jars, also if they were only
    installed again, because Java takes no archive that is older than a file on its class path."""
    files = [java.program.resolve(), Path(pyspark.__file__), *jars]
    about = [pyspark.__version__, *((file, file.stat().st_mtime_ns) for file in files)]
    return hashlib.sha256("\n".join(map(str, about)).encode()).hexdigest()[:8]


def _make(archive: Path) -> None:
    """Makes the archive; an empty file if that fails, so that the next session does not try again. Removes archives
    that no session has used for a month."""
    with os.fdopen(open_lock(archive.with_name("classes.lock")), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several sessions may start at once
        if archive.exists():
            return
        for other in archive.parent.glob("classes-*"):
            if other.is_dir():
                shutil.rmtree(other)  # its maker was killed
            elif time.time() - other.stat().st_mtime > _UNUSED_S:
                other.unlink()
        with tempfile.TemporaryDirectory(dir=archive.parent, prefix="classes-") as workshop:
            made = Path(workshop) / archive.name
            command = [sys.executable, "-m", "cloud.spark.record_classes", str(archive.parent)]
            environment = {**os.environ, _RECORDING: str(made)}
            try:
                subprocess.run(command, env=environment, timeout=_TIMEOUT_S, check=True, capture_output=True)
            except subprocess.SubprocessError:
                made.unlink(missing_ok=True)
            made.touch()
            made.rename(archive)

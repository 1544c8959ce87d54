"""Packages of ESP Web Tools: the real one, and such that an attacker or a bad line could make."""

import io
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tools.cli.paths import cache_directory
from tools.cli.web.esp_web_tools import NAME, TESTED

MANIFEST = b'{"name": "esp-web-tools", "version": "10.9.9"}'
PLAIN = {"package/package.json": MANIFEST, "package/dist/web/install-button.js": b"// none", "package/LICENSE": b"-"}


def fetch(name: str, release: str) -> Path:
    """A package from the registry that npm uses, in the cache. The test is skipped where there is no npm."""
    path = cache_directory() / f"{name}-{release}.tgz"
    if not path.exists():
        if shutil.which("npm") is None:
            assert "CI" not in os.environ, "npm is not installed"
            pytest.skip("npm is not installed")
        path.parent.mkdir(parents=True, exist_ok=True)
        words = ["npm", "pack", f"{name}@{release}", "--pack-destination", str(path.parent)]
        subprocess.run(words, check=True, timeout=120, capture_output=True)
    return path


def real_package() -> Path:
    """The tested version of ESP Web Tools."""
    return fetch(NAME, TESTED)


def improv_client(folder: Path) -> Path:
    """The client that ESP Web Tools has within it, as modules that Node.js takes."""
    modules = folder / "sdk"
    with tarfile.open(fetch("improv-wifi-serial-sdk", "2.8.0")) as package:
        for name in ("const", "serial", "util/hex-formatter", "util/to-hex"):
            file = package.extractfile(f"package/dist/{name}.js")
            assert file is not None
            text = re.sub(r'(from "\./[\w/-]+)"', r'\1.js"', file.read().decode())
            (modules / name).parent.mkdir(parents=True, exist_ok=True)
            (modules / f"{name}.js").write_text(text)
    (modules / "package.json").write_text('{"type": "module"}')
    return modules


def make_package(path: Path, files: dict[str, bytes], link: str = "") -> Path:
    """A package with these files, and a symbolic link of this name."""
    with tarfile.open(path, "w:gz") as package:
        for name, content in files.items():
            about = tarfile.TarInfo(name)
            about.size = len(content)
            package.addfile(about, io.BytesIO(content))
        if link:
            about = tarfile.TarInfo(link)
            about.type, about.linkname = tarfile.SYMTYPE, "/etc/passwd"
            package.addfile(about)
    return path

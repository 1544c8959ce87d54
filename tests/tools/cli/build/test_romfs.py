"""ROMFS images, read by the filesystem of a real MicroPython."""

import subprocess
from pathlib import Path

from tools.cli.build import encode_image
from tools.lab.micropython import MicroPython

FILES = {"main.py": b"text", "empty": b"", "a/b/deep.bin": bytes(range(256)) * 100, "a/c": b"c"}
PROGRAM = """
import os, sys, vfs
vfs.mount(vfs.VfsRom(open(sys.argv[1], "rb").read()), "/rom")
for folder in ("", "/a", "/a/b"):
    print(sorted(os.listdir("/rom" + folder)))
for path in sys.argv[2:]:
    print(sum(open("/rom/" + path, "rb").read()))
"""


def test_micropython_finds_all_files_and_their_bytes(micropython: MicroPython, tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(encode_image(FILES))
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [*micropython.argv, str(tmp_path / "program.py"), str(tmp_path / "image"), *FILES]
    lines = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.splitlines()
    assert lines[:3] == ["['a', 'empty', 'main.py']", "['b', 'c']", "['deep.bin']"]
    assert lines[3:] == [str(sum(content)) for content in FILES.values()]

"""`holdfast cloud ingest` with a decoder that cannot be used."""

import subprocess
import sys
from pathlib import Path


def test_decoder_that_cannot_be_loaded_ends_the_command_with_2_and_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "meters.py"
    file.write_text("from cloud import decoder\n")
    folders = ["--landing", str(tmp_path), "--tables", str(tmp_path / "tables")]
    command = [sys.executable, "-m", "tools.cli.main", "cloud", "ingest", *folders, "--decoder", str(file)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert f"{file} has no function that is marked with @decoder" in done.stderr
    assert not (tmp_path / "tables").exists()

"""``holdfast gateway backup``, ``restore`` and ``new-epoch``: a gateway goes on from a copy of its store."""

import shutil
from pathlib import Path

import pytest
from typer.testing import Result

from tests.gateway.store.support import messages_in
from tests.support.command import holdfast
from tests.tools.cli.gateway.running import Gateway, publish


def run(gateway: Gateway, command: str, *arguments: str) -> Result:
    return holdfast("gateway", command, *arguments, "--config", str(gateway.path))


def test_a_backup_restored_to_an_empty_place_leaves_no_other_files_there(tmp_path: Path) -> None:
    gateway, copy = Gateway(tmp_path), str(tmp_path / "copy")
    with gateway.running():
        assert run(gateway, "backup", copy).exit_code == 0
    shutil.rmtree(tmp_path / "store")
    done = run(gateway, "restore", copy)
    assert (done.exit_code, done.stdout) == (0, f"{tmp_path}/store: restored from {copy}\n"), done.stderr
    assert sorted(path.name for path in (tmp_path / "store").iterdir()) == ["lock", "messages.sqlite"]


def test_there_is_nothing_to_back_up_without_a_store(tmp_path: Path) -> None:
    done = run(Gateway(tmp_path), "backup", str(tmp_path / "copy"))
    assert (done.exit_code, done.stderr) == (
        2,
        f"holdfast gateway backup: message store {tmp_path}/store: there is none\n",
    )


@pytest.mark.skipif(shutil.which("mosquitto_pub") is None, reason="needs mosquitto-clients")
def test_a_gateway_is_copied_while_it_runs_and_goes_on_from_the_copy(tmp_path: Path) -> None:
    gateway, copy = Gateway(tmp_path), str(tmp_path / "copy")
    with gateway.running() as process:
        assert publish(gateway.port) == 0
        done = run(gateway, "backup", copy)
        assert done.exit_code == 0 and f"copied to {copy}" in done.stdout, done.stderr
        refused = run(gateway, "restore", copy)
        assert refused.exit_code == 2 and "another process uses it" in refused.stderr
        process.stop()
    done = run(gateway, "restore", copy)
    assert done.exit_code == 0 and "the files that were there are in" in done.stdout, done.stderr
    epochs = []
    for _ in range(2):
        with gateway.running() as process:
            assert publish(gateway.port) == 0
            process.stop()
        epochs.append(messages_in(tmp_path / "store")[-1][1].epoch)
        assert run(gateway, "new-epoch").exit_code == 0
    assert len(set(epochs)) == 2


def test_a_backup_that_cannot_be_written_is_named_with_the_reason_alone(tmp_path: Path) -> None:
    gateway, target = Gateway(tmp_path), tmp_path / "absent/copy"
    with gateway.running():
        done = run(gateway, "backup", str(target))
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.endswith(f"{target.parent}: No such file or directory\n") and "Errno" not in done.stderr


def test_a_backup_leaves_the_files_of_others_alone(tmp_path: Path) -> None:
    gateway, copy = Gateway(tmp_path), tmp_path / "copy"
    (tmp_path / "copy.part").write_text("precious")
    with gateway.running():
        assert run(gateway, "backup", str(copy)).exit_code == 0
    assert (tmp_path / "copy.part").read_text() == "precious"
    too_long = run(gateway, "backup", str(tmp_path / ("x" * 300)))
    assert (too_long.exit_code, too_long.stderr.count("\n")) == (2, 1)
    assert too_long.stderr.endswith(": File name too long\n")


def test_a_file_that_is_no_backup_is_not_restored(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path)
    for source, why in ((gateway.path, "it is no backup of a message store"), (tmp_path, "Is a directory")):
        done = run(gateway, "restore", str(source))
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
        assert done.stderr.endswith(f"{source}: {why}\n")
    assert not (tmp_path / "store").exists()

"""``holdfast gateway migrate``: a gateway goes on in the folders of another configuration."""

import shutil
from pathlib import Path

import pytest
from typer.testing import Result

from tests.gateway.store.support import messages_in
from tests.support.command import holdfast
from tests.tools.cli.gateway.running import Gateway, publish
from tools.lab.testing.process import ProcessFailed

STREAMS = '[[stream]]\nname = "plant"\n[[stream]]\nname = "office"\npath = "elsewhere"\n'
MOSQUITTO = pytest.mark.skipif(shutil.which("mosquitto_pub") is None, reason="needs mosquitto-clients")


def migrate(old: Path, new: Path) -> Result:
    return holdfast("gateway", "migrate", str(old), str(new))


def made(folder: Path, listener: str = STREAMS, name: str = "garage") -> Gateway:
    folder.mkdir()
    return Gateway(folder, 'acl = "rules"', listener, name)


def used(folder: Path) -> Gateway:
    """A gateway that has stored a message and was stopped."""
    gateway = made(folder)
    (folder / "rules").write_text("allow * publish,subscribe #\n")
    with gateway.running() as process:
        assert publish(gateway.port) == 0
        process.stop()
    return gateway


@MOSQUITTO
def test_a_gateway_goes_on_in_another_folder_with_its_rules_and_streams(tmp_path: Path) -> None:
    gateway = made(tmp_path / "old")
    (tmp_path / "old/rules").write_text("allow * publish,subscribe #\nallow * publish,subscribe $SYS/STREAM/#\n")
    with gateway.running() as process:
        assert publish(gateway.port) == 0
        assert publish(gateway.port, "-D", "publish", "user-property", "hf-stream", "plant") == 0
        process.stop()
    new = tmp_path / "new/gateway.toml"
    done = migrate(gateway.path, new)
    assert done.exit_code == 0, done.stderr
    assert "  3 streams, 2 messages, " in done.stdout and "0 differences; the old stores are sealed" in done.stdout
    with pytest.raises(ProcessFailed, match="moved to"), gateway.running():
        pass
    assert "moved to" in holdfast("gateway", "check-config", str(gateway.path)).stderr
    assert (tmp_path / "new/rules").read_text() == (tmp_path / "old/rules").read_text()
    gateway.path = new
    with gateway.running() as process:
        assert publish(gateway.port) == 0
        process.stop()
    before, after = messages_in(tmp_path / "old/store")[-1][1], messages_in(tmp_path / "new/store")[-1][1]
    assert (after.epoch, after.seq) == (before.epoch, before.seq + 1)
    again = migrate(tmp_path / "old/gateway.toml", new)
    assert (again.exit_code, "already" in again.stderr) == (2, True)


@MOSQUITTO
def test_a_stream_that_was_taken_of_a_neighbour_is_moved_too(tmp_path: Path) -> None:
    gateway = made(tmp_path / "old", '[network]\nstreams = "any"\n[[stream]]\nname = "plant"\n')
    (tmp_path / "old/rules").write_text("allow * publish,subscribe $SYS/STREAM/#\n")
    with gateway.running() as process:
        assert publish(gateway.port, "-D", "publish", "user-property", "hf-stream", "plant") == 0
        process.stop()
    gateway.path.write_text(gateway.path.read_text().replace('[[stream]]\nname = "plant"\n', ""))
    text = gateway.path.read_text()
    gateway.path.write_text(text.replace('streams = "any"', ""))
    unused = holdfast("gateway", "check-config", str(gateway.path))
    assert f"warning: a stream's store is not used: {tmp_path}/old/store/streams/plant: " in unused.stderr
    gateway.path.write_text(text)
    done = migrate(gateway.path, tmp_path / "new/gateway.toml")
    assert done.exit_code == 0, done.stderr
    assert "  2 streams, 1 messages, " in done.stdout
    gateway.path = tmp_path / "new/gateway.toml"
    with gateway.running() as process:
        assert publish(gateway.port, "-D", "publish", "user-property", "hf-stream", "plant") == 0
        process.stop()
    assert messages_in(tmp_path / "new/store/streams/plant")[-1][1].seq == 2


@MOSQUITTO
def test_configurations_that_do_not_fit_are_named_with_what_is_wrong(tmp_path: Path) -> None:
    gateway = used(tmp_path / "old")
    other_name = made(tmp_path / "a", name="shed").path
    assert "name: 'shed', expected 'garage'" in migrate(gateway.path, other_name).stderr
    fewer = made(tmp_path / "b", '[[stream]]\nname = "plant"\n').path
    assert "no [[stream]] is named 'office'" in migrate(gateway.path, fewer).stderr
    same = made(tmp_path / "c").path
    same.write_text(same.read_text().replace('path = "store"', f'path = "{tmp_path}/old/store"'))
    assert f"store.path: {tmp_path}/old/store is the folder of {gateway.path} too" in migrate(gateway.path, same).stderr
    gateway.path.write_text(gateway.path.read_text().replace('path = "store"', f'path = "{tmp_path}/outside"'))
    done = migrate(gateway.path, tmp_path / "d/gateway.toml")
    assert (done.exit_code, "is not below its folder: write" in done.stderr) == (2, True)
    assert not (tmp_path / "d").exists()


@MOSQUITTO
def test_a_migration_keeps_the_files_of_others(tmp_path: Path) -> None:
    gateway = used(tmp_path / "old")
    other = tmp_path / "new/rules"
    other.parent.mkdir()
    other.write_text("precious")
    done = migrate(gateway.path, tmp_path / "new/gateway.toml")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert f"{other}: there is another file already" in done.stderr
    assert other.read_text() == "precious"
    other.unlink()
    assert migrate(gateway.path, tmp_path / "new/gateway.toml").exit_code == 0

"""The machine as a sensor, on files as Linux writes them."""

from pathlib import Path

import pytest

from device.sensors.host import Host

FILES = {
    "proc/loadavg": "0.31 0.20 0.10 2/93 27831\n",
    "proc/meminfo": "MemTotal: 100 kB\nMemAvailable:    2000 kB\n",
    "proc/diskstats": " 254 0 vda 1 2 10 4 5 6 20 8 0 9 10\n 254 1 vda1 1 2 10 4 5 6 20 8 0 9 10\n"
    " 7 0 loop0 1 2 10 4 5 6 20 8 0 9 10\n 8 0 sda 1 2 1 4 5 6 2 8 0 9 10\n",
    "sys/block/vda/size": "1",
    "sys/block/sda/size": "1",
    "sys/block/loop0/size": "1",
    "proc/net/dev": "Inter-| Receive\n face |bytes\n    lo: 9 0 0 0 0 0 0 0 9 0 0 0 0 0 0 0\n"
    "  eth0:100 0 0 0 0 0 0 0 30 0 0 0 0 0 0 0\n wlan0: 20 0 0 0 0 0 0 0 3 0 0 0 0 0 0 0\n",
    "sys/class/thermal/thermal_zone0/temp": "42500\n",
    "sys/class/hwmon/hwmon0/temp1_input": "31000\n",
}


def machine(folder: Path) -> Host:
    for name, content in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return Host(str(folder))


def test_all_sources_are_sampled(tmp_path: Path) -> None:
    assert machine(tmp_path).sample() == [
        ("load", "/", 0.31),
        ("memory_available", "B", 2000 * 1024),
        ("disk_read", "B", 11 * 512),
        ("disk_written", "B", 22 * 512),
        ("network_received", "B", 120),
        ("network_sent", "B", 33),
        ("temperature", "Cel", 42.5),
    ]


@pytest.mark.parametrize(
    ("file", "gone"),
    [
        ("proc/loadavg", {"load"}),
        ("proc/meminfo", {"memory_available"}),
        ("proc/diskstats", {"disk_read", "disk_written"}),
        ("proc/net/dev", {"network_received", "network_sent"}),
    ],
)
@pytest.mark.parametrize("content", [None, "", "nonsense: here\n"])
def test_source_that_is_absent_or_unreadable_is_left_out(
    file: str, gone: set[str], content: str | None, tmp_path: Path
) -> None:
    host = machine(tmp_path)
    everything = {name for name, _, _ in host.sample()}
    if content is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_text(content)
    assert {name for name, _, _ in host.sample()} == everything - gone


def test_temperature_comes_from_hwmon_where_no_thermal_zone_tells_it(tmp_path: Path) -> None:
    host = machine(tmp_path)
    for broken in ("broken", "-274000"):
        (tmp_path / "sys/class/thermal/thermal_zone0/temp").write_text(broken)
        assert ("temperature", "Cel", 31.0) in host.sample()
    (tmp_path / "sys/class/hwmon/hwmon0/temp1_input").unlink()
    assert "temperature" not in {name for name, _, _ in host.sample()}
